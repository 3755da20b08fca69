"""`@record`: the frozen, slotted, keyword-only dataclasses of the core, made fast.

Inputs and events are made several times per tool call and there are some seventy kinds of them, so
two costs of `@dataclass(frozen=True, slots=True)` matter here: it writes every field through
`object.__setattr__`, and it compiles six functions per class at import. A record is filled while it
is still an instance of a plain twin class with the same slots, and becomes its own, frozen class at
the end; what needs no code of its own (repr, equality, hash, frozenness) is shared by all.

To the outside a record is a dataclass: `fields`, `replace` and `asdict` work on it. Whoever makes
one for every call takes its `maker` once: calling a class with keywords packs them into a
dictionary twice on their way to the constructor, which costs more than to build the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from typing import Any, NoReturn, ParamSpec, TypeVar, dataclass_transform

T = TypeVar("T")
P = ParamSpec("P")


class _Empty(dict[Any, Any]):
    """A dictionary that stays empty."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("the default of a record cannot be filled: make a dictionary of your own")

    __setitem__ = setdefault = update = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return 0

    def __reduce__(self) -> str:
        return "EMPTY"


EMPTY = _Empty()
"""The default of a field that is a dictionary: defaults are shared."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class of annotated fields a frozen, slotted, keyword-only dataclass.

    Defaults must be immutable: they are shared, as default arguments are.
    """
    plain: Any = dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    fields: dict[str, Field[Any]] = plain.__dataclass_fields__
    # Whoever asks whether it is frozen shall be told so: `_refuse_change` sees to it.
    plain.__dataclass_params__.frozen = True
    names = tuple(fields)
    body = {key: value for key, value in vars(cls).items() if key not in names}
    for gone in ("__dict__", "__weakref__"):
        body.pop(gone, None)
    twin = type(cls.__name__, (), {"__slots__": names, "__module__": cls.__module__})
    body |= {
        "__slots__": names,
        "__match_args__": (),
        "__new__": _constructor(cls.__qualname__, fields, twin),
        "__setattr__": _refuse_change,
        "__delattr__": _refuse_change,
        "__repr__": _repr,
        "__eq__": _equals,
        "__hash__": _hash,
        "__reduce__": _reduce,
    }
    made: type[T] = type(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def maker(cls: Callable[P, T]) -> Callable[P, T]:
    """The constructor of a record, bound to its class: the same function, called directly."""
    new: Any = cls.__new__
    made: Callable[P, T] = new.__get__(cls)
    return made


def _constructor(name: str, fields: dict[str, Field[Any]], twin: type) -> Any:
    parameters = []
    scope: dict[str, Any] = {"twin": twin}
    for one in fields.values():
        assert one.default_factory is MISSING, f"{name}.{one.name}: a record has no factories"
        if one.default is MISSING:
            parameters.append(one.name)
        else:
            scope[f"default_{one.name}"] = one.default
            parameters.append(f"{one.name}=default_{one.name}")
    head = ", ".join(["cls", "*", *parameters] if parameters else ["cls"])
    lines = [f"def __new__({head}):", " self = twin()"]
    lines += [f" self.{one} = {one}" for one in fields]
    lines += [" self.__class__ = cls", " return self"]
    exec("\n".join(lines), scope)
    return scope["__new__"]


def _refuse_change(self: Any, name: str, value: object = None) -> NoReturn:
    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__slots__)


def _repr(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__name__}({inside})"


def _equals(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash((type(self), *_values(self)))


def _rebuild(cls: type, values: tuple[Any, ...]) -> Any:
    return cls(**dict(zip(cls.__slots__, values, strict=True)))  # type: ignore[attr-defined]


def _reduce(self: Any) -> tuple[Any, ...]:
    return _rebuild, (type(self), _values(self))
