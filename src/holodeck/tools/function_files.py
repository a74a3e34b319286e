"""Loads functions from Python files that an agent's file names.

Only files below the agent's folder are loaded: nothing else in YAML can name code to run. Each file becomes a module
under a private name; `sys.path` does not change.
"""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from holodeck.core.text import one_line
from holodeck.errors import ConfigError
from holodeck.tools.names import suggestion


def load_function(file: str | Path, name: str, root: Path) -> Callable[..., Any]:
    """The function `name` of `file`, which is relative to `root`, the agent's folder."""
    module = _module(str(file), _path(str(file), root))
    function = getattr(module, name, None)
    if function is None:
        raise ConfigError(f"{file} has no function '{name}'{suggestion(name, _functions(module))}")
    if not callable(function):
        raise ConfigError(f"'{name}' in {file} is not a function (its type: {type(function).__name__})")
    return function  # type: ignore[no-any-return]


def _path(file: str, root: Path) -> Path:
    path = (root / file).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ConfigError(f"{file} is outside the agent's folder; move it into the folder")
    if path.suffix != ".py":
        raise ConfigError(f"{file} is not a Python file; its name must end in .py")
    if not path.is_file():
        raise ConfigError(f"{file}: there is no such file in the agent's folder")
    return path


def _module(file: str, path: Path) -> ModuleType:
    """The module of a file. Two functions of one file share it; a file that has changed becomes another module."""
    state = path.stat()
    key = f"{path}:{state.st_mtime_ns}:{state.st_size}"
    name = f"_holodeck_tools_{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and typing look their module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(_failure(file, path, error)) from error
    return module


def _failure(file: str, path: Path, error: BaseException) -> str:
    what = f"{type(error).__name__}: {one_line(str(error), 200)}"
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{file}:{error.lineno}: SyntaxError: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{file}:{lines[-1]}: {what}" if lines else f"{file}: {what}"


def _functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and value.__module__ == module.__name__]
