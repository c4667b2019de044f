"""Whether a model is exact on this machine: every way to the same logits must give the same bits.

A check observes the same tokens in two ways and compares the logits bit for bit. So that none can pass by
accident, each check is also run with one token of one side changed: if it does not see that, it fails
whatever it found before.
"""

from .checks import CHECKS, Check, Result, verify
from .comparison import Difference, Observation, compare
from .subject import Precision, Setup, Subject

__all__ = [
    "CHECKS",
    "Check",
    "Difference",
    "Observation",
    "Precision",
    "Result",
    "Setup",
    "Subject",
    "compare",
    "verify",
]
