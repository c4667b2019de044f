# Written by tests/plan/test_table.py from the families beside this file: LLAMAY_UPDATE_SNAPSHOTS=1 writes it anew.
from collections.abc import Mapping

from llamay_models.plan.recorder import Recorder
from llamay_models.plan.schema import Fusion, Operation
from llamay_models.plan.operations.attention import Attention
from llamay_models.plan.operations.elementwise import Elementwise
from llamay_models.plan.operations.embedding import Embedding
from llamay_models.plan.operations.experts import Experts
from llamay_models.plan.operations.linear import Linear
from llamay_models.plan.operations.norm import Norm
from llamay_models.plan.operations.recurrent import Recurrent
from llamay_models.plan.operations.rope import Rotation
from llamay_models.plan.operations.shape import Shape

TABLE: Mapping[str, Operation]
FAMILIES: tuple[type[Recorder], ...]
FUSIONS: tuple[Fusion, ...]

class Vocabulary(Attention, Elementwise, Embedding, Experts, Linear, Norm, Recurrent, Rotation, Shape): ...
