# What the stub generator cannot see: python -m nanobind.stubgen -m llamay_kernels._kernels -p cpp/stubs.pat -o src/llamay_kernels/_kernels.pyi
llamay_kernels._kernels.FORMATS$:
    FORMATS: dict[str, tuple[int, int]] = ...

llamay_kernels._kernels.Weight.__init__:
    \from typing_extensions import Buffer
    def __init__(self, data: Buffer, format: str, rows: int, cols: int, *, name: str = '', threads: Threads | None = None, mapped: bool = False) -> None:
        \doc

llamay_kernels._kernels.dequantize$:
    def dequantize(data: Buffer, format: str, count: int) -> NDArray[numpy.float32]:
        \doc
