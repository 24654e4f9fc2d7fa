"""Asks NVIDIA's driver for the GPU. Needs neither TensorFlow nor CUDA."""

from __future__ import annotations

import ctypes
import dataclasses

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...


class NoGpuError(Exception):
    """There is no GPU that CUDA can use; the message is a sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name: the name that the driver gives.
        memory: in bytes.
        capability: its compute capability.
        driver: the newest CUDA version that the driver supports.
    """

    name: str
    memory: int
    capability: tuple[int, int]
    driver: tuple[int, int]

    @property
    def tf32(self) -> bool:
        """Whether it has TF32, as Ampere and later GPUs do."""
        return self.capability >= (8, 0)

    def __str__(self) -> str:
        """Describes the GPU."""
        version, driver = (".".join(map(str, v)) for v in (self.capability, self.driver))
        return (
            f"{self.name} ({self.memory / 1e9:.0f} GB, compute capability {version}, "
            f"driver's CUDA {driver})"
        )


def find() -> Gpu:
    """Returns the first GPU that is visible to this process.

    Raises:
        NoGpuError: if there is none.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoGpuError(
            "this machine has no NVIDIA GPU, or no driver for it: libcuda.so.1 is not found"
        ) from None
    code = driver.cuInit(0)
    if code != 0:
        raise NoGpuError(f"NVIDIA's driver finds no usable GPU (cuInit returns {code})")
    number = ctypes.c_int()

    def told(function: str, *rest: object) -> int:
        code = getattr(driver, function)(ctypes.byref(number), *rest)
        if code != 0:
            raise NoGpuError(f"NVIDIA's driver cannot describe its GPU ({function} returns {code})")
        return number.value

    if told("cuDeviceGetCount") == 0:
        raise NoGpuError("NVIDIA's driver shows no GPU; is CUDA_VISIBLE_DEVICES set?")
    device = told("cuDeviceGet", 0)
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    major, minor = (told("cuDeviceGetAttribute", which, device) for which in (_MAJOR, _MINOR))
    version = told("cuDriverGetVersion")
    return Gpu(
        name=name.value.decode(errors="replace"),
        memory=memory.value,
        capability=(major, minor),
        driver=(version // 1000, version % 1000 // 10),
    )
