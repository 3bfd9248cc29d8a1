"""A simulated GPU: tensors that say they are on "cuda:0", refuse those of the CPU, and count transfers.

    with simulated_device() as traffic:
        bvat.train(graph.to("cuda"), settings)
        assert traffic["down"] < 100

Every tensor of the device is a wrapper around one of the CPU, so results are those of the CPU, bit for bit.
What torch refuses on a GPU is refused here: operands on two devices (but a CPU scalar in arithmetic),
generators of another device, and ``numpy()``. torch's FakeTensorMode refuses the same in a CPU build, but has
no numbers, on which training depends. Kernels of a GPU, their rounding, memory and speed are not simulated.

Inside, the wrappers have the device "meta": autograd of a CPU build ends the process at tensors on "cuda".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda", 0)
CPU = torch.device("cpu")
INDEXES = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}
TAKES_SCALARS = INDEXES | {"masked_fill", "masked_fill_", "index_fill", "index_fill_", "fill_"}
OTHER = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


class Traffic(Counter[str]):
    """How often something went "up" to the device, "down" to the host, or made the host "wait" for a size."""

    def since(self, before: Counter[str]) -> dict[str, int]:
        return {name: self[name] - before[name] for name in ("up", "down", "wait")}


_traffic = Traffic()


class SimulatedTensor(Tensor):
    """A tensor "on the device"; ``inner`` is the real one."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> SimulatedTensor:
        layout = {}
        if inner.layout == torch.strided:
            layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        made: SimulatedTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, dtype=inner.dtype, device="meta", **layout
        )
        made.inner = inner
        return made

    def __init__(self, inner: Tensor) -> None:
        super().__init__()

    device = property(lambda self: DEVICE)  # type: ignore[assignment]
    is_cuda, is_cpu, is_meta = True, False, False  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.inner!r} on {DEVICE}"

    def __deepcopy__(self, memo: dict[int, Any]) -> SimulatedTensor:
        made = self.detach().clone().requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, self.requires_grad)
        return memo.setdefault(id(self), made)  # type: ignore[return-value]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise AssertionError("a tensor of the device is about to be pickled")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if name == "copy_":
            _traffic["up"] += not isinstance(args[1], SimulatedTensor)
            _traffic["down"] += not isinstance(args[0], SimulatedTensor)
        else:
            _check(func, name, args, kwargs)
        _traffic["down"] += name == "_local_scalar_dense"
        _traffic["wait"] += _waits(func, name, args)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": CPU}
        out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        return _wrapped(func, args, kwargs, out)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, SimulatedTensor) else value


def _wrap(value: Any) -> Any:
    return SimulatedTensor(value) if isinstance(value, Tensor) else value


def _check(func: Any, name: str, args: Any, kwargs: Any) -> None:
    """Raise RuntimeError for operands of the CPU, where torch does."""
    pointwise = torch.Tag.pointwise in func.tags or name in TAKES_SCALARS
    for place, argument in enumerate(func._schema.arguments):
        given = args[place] if place < len(args) else kwargs.get(argument.name)
        written = argument.alias_info is not None and argument.alias_info.is_write
        for each in tree_leaves(given):
            if not isinstance(each, Tensor) or isinstance(each, SimulatedTensor):
                continue
            if each.is_meta:
                raise AssertionError(f"{name} met a tensor that torch made on the inner device of wrappers")
            if name in INDEXES and argument.name == "indices":
                _traffic["up"] += 1  # allowed, but copied
            elif written or each.dim() or not pointwise or isinstance(given, (list, tuple)):
                raise RuntimeError(f"{OTHER} (in {func})")


def _waits(func: Any, name: str, args: Any) -> bool:
    """Return whether the host has to wait for the device to know the size of the result."""
    if name in INDEXES:
        return any(isinstance(each, Tensor) and each.dtype == torch.bool for each in tree_leaves(args[1]))
    return name == "bincount" or torch.Tag.dynamic_output_shape in func.tags


def _wrapped(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Wrap what an operation returned; what it wrote to is returned itself."""
    schema, given = func._schema, {}
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            given[frozenset(argument.alias_info.after_set)] = value
            for each in tree_leaves(value):
                if isinstance(each, SimulatedTensor) and each.inner.shape != each.shape:
                    raise AssertionError(f"{func} changed the shape of what it wrote to")
    if not schema.returns:
        return None
    several = len(schema.returns) > 1
    made = [
        given[frozenset(declared.alias_info.after_set)]
        if declared.alias_info is not None and declared.alias_info.is_write
        else tree_map(_wrap, each)
        for declared, each in zip(schema.returns, out if several else [out], strict=True)
    ]
    return tuple(made) if several else made[0]


class _Up(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        _traffic["up"] += 1
        return SimulatedTensor(value.detach().clone())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _Down.apply(grads[0])  # type: ignore[no-any-return, no-untyped-call]


class _Down(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        _traffic["down"] += 1
        return _inner(value.detach()).clone()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _Up.apply(grads[0])  # type: ignore[no-any-return, no-untyped-call]


def up(value: Tensor) -> Tensor:
    """Return a tensor on the device."""
    moved: Tensor = value if isinstance(value, SimulatedTensor) else _Up.apply(value)  # type: ignore[no-untyped-call]
    return moved


def down(value: Tensor) -> Tensor:
    """Return a tensor on the CPU."""
    moved: Tensor = _Down.apply(value) if isinstance(value, SimulatedTensor) else value  # type: ignore[no-untyped-call]
    return moved


class _OfBoth(type(torch._C.Generator)):  # type: ignore[misc]
    """Generators made before this file count as generators."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_OfBoth):
    """A generator of the CPU or, by what it says, of the device."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls, device=CPU)
        made.place = DEVICE if torch.device(device).type == "cuda" else CPU  # type: ignore[attr-defined]
        return made

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    device = property(lambda self: self.place)  # type: ignore[assignment]

    def set_state(self, new_state: Tensor) -> Any:
        if isinstance(new_state, SimulatedTensor):
            raise TypeError("RNG state must be a torch.ByteTensor")
        return super().set_state(new_state)


def _is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


class _Calls(TorchFunctionMode):
    """Sees calls from Python: moves between devices, what is made on the device, and what only a CPU has."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        this = args[0] if args and isinstance(args[0], Tensor) else None
        on_device = isinstance(this, SimulatedTensor)
        _check_generators(args, kwargs)
        if func in (Tensor.to, Tensor.cpu, Tensor.cuda, torch.as_tensor, torch.asarray) and this is not None:
            return _moved(func, name, this, args, kwargs)
        if on_device and func in (Tensor.numpy, Tensor.__array__):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor"
            )
        if on_device and func is Tensor.data_ptr:
            return _inner(this).data_ptr()
        if func is Tensor.backward:  # without this call, backward passes would not be seen
            with self:
                return torch.autograd.backward(this, *args[1:], kwargs.pop("gradient", None), **kwargs)
        if on_device and func is Tensor.tolist:
            _traffic["down"] += 1
            return _inner(this).tolist()
        if on_device and func is Tensor.new_tensor:
            _traffic["up"] += 1
            return SimulatedTensor(torch.tensor(args[1], **{"dtype": this.dtype, **kwargs}))  # type: ignore[union-attr]
        if name in ("sparse_csr_tensor", "sparse_coo_tensor") and isinstance(args[0], SimulatedTensor):
            if not all(isinstance(each, SimulatedTensor) for each in args if isinstance(each, Tensor)):
                raise RuntimeError(OTHER)
            return SimulatedTensor(func(*tree_map(_inner, args), **kwargs))
        if on_device and func is Tensor.__setitem__ and not isinstance(args[2], Tensor):
            args = [*args[:2], torch.tensor(args[2], dtype=this.dtype)]  # type: ignore[union-attr]
        if func is torch.where and any(isinstance(each, SimulatedTensor) for each in args):
            kind = torch.result_type(*map(_inner, args[1:]))  # torch would keep a number on the inner device
            args = [each if isinstance(each, Tensor) else torch.tensor(each, dtype=kind) for each in args]
        if _is_cuda(kwargs.get("device")):
            del kwargs["device"]
            if this is not None:  # new_zeros, zeros_like and their like
                return func(*args, **kwargs) if on_device else up(func(*args, **kwargs))
            _traffic["up"] += name in ("tensor", "as_tensor", "asarray")
            asked = kwargs.pop("requires_grad", False)
            return SimulatedTensor(func(*args, **kwargs)).requires_grad_(asked)
        if on_device and kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu":
            del kwargs["device"]
            return _inner(func(*args, **kwargs))
        return func(*args, **kwargs)


def _check_generators(args: Any, kwargs: Any) -> None:
    generators = [g for g in (*args, *kwargs.values()) if isinstance(g, torch._C.Generator)]
    if not generators:
        return
    tensors = [each for each in args if isinstance(each, Tensor)]
    place = tensors[0].device if tensors else torch.device(kwargs.get("device") or "cpu")
    for generator in generators:
        if generator.device.type != place.type:
            raise RuntimeError(
                f"Expected a '{place.type}' device type for generator but found '{generator.device}'"
            )


def _moved(func: Any, name: str, this: Tensor, args: Any, kwargs: Any) -> Tensor:
    """Carry out ``to``, ``cpu`` and ``cuda`` of a tensor, and ``as_tensor`` of one."""
    rest = list(args[1:])
    device = {"cpu": CPU, "cuda": DEVICE}.get(name, kwargs.pop("device", None))
    if rest and isinstance(rest[0], (str, torch.device)):
        device = rest.pop(0)
    elif rest and isinstance(rest[0], Tensor):
        device, rest[0] = rest[0].device, rest[0].dtype
    elif rest and rest[0] is None:
        del rest[0]
    kwargs.pop("non_blocking", None)
    dtype = kwargs.pop("dtype", None) or next((each for each in rest if isinstance(each, torch.dtype)), None)
    if device is not None:
        this = this if torch.device(device).type == "meta" else (up if _is_cuda(device) else down)(this)
        if torch.device(device).type == "meta":
            return Tensor.to(this, "meta", dtype)
    copy = {"copy": True} if kwargs.get("copy") else {}
    return Tensor.to(this, dtype or this.dtype, **copy)


@contextmanager
def simulated_device() -> Iterator[Traffic]:
    """Let ``"cuda"`` be the simulated device inside the block."""

    def state(device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def restore(new_state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(new_state)

    of_cuda = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: "simulated device",
        "get_device_capability": lambda device=None: (0, 0),
        "synchronize": lambda device=None: None,
        "device": lambda device: nullcontext(),
        "get_rng_state": state,
        "set_rng_state": restore,
        "manual_seed": torch.default_generator.manual_seed,
    }
    _traffic.clear()
    with (
        mock.patch.multiple(torch.cuda, **of_cuda),
        mock.patch.object(torch, "Generator", Generator),
        mock.patch("torch.autograd.has_torch_function", return_value=False),
        _Calls(),
    ):
        yield _traffic


def host(value: Tensor) -> np.ndarray[Any, Any]:
    """Return the numbers of a tensor of either device, for assertions; not counted as a transfer."""
    found: np.ndarray[Any, Any] = _inner(value.detach()).numpy()
    return found
