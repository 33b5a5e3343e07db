"""The kernel's imports while it answers a question: none.

To complete `import this.th` IPython imports `this`, which runs its code. And as a question must not hold the kernel,
such an import is broken off when its time is up: what it had loaded of a library by then does not fit what the user's
own import loads later, and the library stays broken until the kernel is another one. So modules that are not loaded are
listed from their files (`written`), and any other import that answering leads to, as by a library that loads its parts
when they are first named, is refused before it begins.
"""

import ast
import pkgutil
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType

LONGEST_MODULE = 1024 * 1024  # bytes of source that are read for its names
_IMPORTING = re.compile(r"importlib\b|_frozen_importlib")
# What was loaded before the user's first line, and what Python brings.
_OWN = (frozenset(name.partition(".")[0] for name in sys.modules) | sys.stdlib_module_names) - {"__main__"}


@contextmanager
def importing_nothing() -> Iterator[None]:
    """For the thread that answers; others of the user's do not notice."""
    from IPython.core import completerlib

    importing = completerlib.try_import, completerlib.get_root_modules
    completerlib.try_import, completerlib.get_root_modules = written, _roots
    refusal = _Refusal()
    sys.meta_path.insert(0, refusal)
    try:
        yield
    finally:
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not refusal]
        completerlib.try_import, completerlib.get_root_modules = importing


class _Refusal:
    """The first finder of modules meanwhile. What answers may still load parts of itself."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if threading.get_ident() == self._thread and _importer().partition(".")[0] not in _OWN:
            raise ModuleNotFoundError(f"{name} is not loaded, and a question loads nothing", name=name)


def _importer() -> str:
    """The module whose import all this is for: one of those it imports may be importing by now."""
    importer, behind = "", ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if _IMPORTING.match(behind) and not _IMPORTING.match(name):
            importer = name
        behind, frame = name, frame.f_back
    return importer


def _roots() -> list[str]:
    """The modules that can be imported by one name."""
    return [*sys.builtin_module_names, *(module.name for module in pkgutil.iter_modules())]


def written(mod: str, only_modules: bool = False) -> list[str]:
    """The submodules of a module, and unless `only_modules` its names, as its files tell them if it is not loaded."""
    if not (parts := mod.rstrip(".").split("."))[0]:
        return []
    path, spec = None, None
    for number in range(len(parts)):
        if (spec := _spec(".".join(parts[: number + 1]), path)) is None:
            return []
        path = list(spec.submodule_search_locations or [])
    assert spec is not None
    found = {module.name for module in pkgutil.iter_modules(path)} if path else set()
    if not only_modules:
        module = sys.modules.get(spec.name)
        found |= set(dir(module)) if module is not None else _names(spec)
    return sorted(found)


def _spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    if (spec := getattr(sys.modules.get(name), "__spec__", None)) is not None:
        return spec  # type: ignore[no-any-return]
    finders = [finder for finder in sys.meta_path if not isinstance(finder, _Refusal)]
    return next((spec for finder in finders if (spec := finder.find_spec(name, path)) is not None), None)


def _names(spec: ModuleSpec) -> set[str]:
    """What the source of a module gives a name, at its outermost level."""
    file = Path(spec.origin or "")
    try:
        if file.suffix != ".py" or file.stat().st_size > LONGEST_MODULE:
            return set()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # it is being written, or never was Python
        return set()
    names: set[str] = set()
    within: list[ast.AST] = [*tree.body]
    while within:
        node = within.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            within += ast.iter_child_nodes(node)
    return names - {"*"}
