from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Optional, Union, overload

import pandas

from .scenarios import Scenario as TypedScenario

ScenarioLike = Union[str, "PathLike[str]", TypedScenario, dict[str, Any]]
Overrides = Union[Mapping[str, Any], Sequence[str]]

__version__: str

class Diagnostic:
    code: Optional[str]
    title: Optional[str]
    message: str
    file: Optional[str]
    line: Optional[int]
    column: Optional[int]
    suggestion: Optional[str]

class Error(Exception):
    code: Optional[str]
    exit_code: int
    diagnostics: list[Diagnostic]

class InputError(Error, ValueError): ...
class InfeasibleError(Error): ...
class InternalError(Error): ...

class Output:
    code: int
    text: str
    errors: str

class Table(list[dict[str, Any]]):
    @property
    def columns(self) -> list[str]: ...
    def frame(self) -> pandas.DataFrame: ...

class Summary(dict[str, Any]):
    @property
    def metrics(self) -> dict[str, dict[str, Any]]: ...
    def value(self, name: str) -> Optional[float]: ...
    @property
    def passed(self) -> bool: ...
    def frame(self) -> pandas.DataFrame: ...

class Explanation(dict[str, Any]):
    @property
    def verdict(self) -> str: ...
    def frame(self) -> pandas.DataFrame: ...

class Plans(dict[str, Any]):
    @property
    def plans(self) -> Table: ...
    @property
    def best(self) -> Optional[list[str]]: ...
    def frame(self) -> pandas.DataFrame: ...

def run(
    scenario: ScenarioLike,
    set: Optional[Overrides] = None,
    *,
    policies: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = None,
    **options: Any,
) -> Summary: ...
@overload
def run_many(
    scenarios: Iterable[ScenarioLike],
    sets: None = None,
    *,
    jobs: Optional[int] = None,
    errors: str = "raise",
    timeout: Optional[float] = None,
    **options: Any,
) -> list[Summary]: ...
@overload
def run_many(
    scenarios: ScenarioLike,
    sets: Iterable[Overrides],
    *,
    jobs: Optional[int] = None,
    errors: str = "raise",
    timeout: Optional[float] = None,
    **options: Any,
) -> list[Summary]: ...
def explain(
    scenario: ScenarioLike, set: Optional[Overrides] = None, *, timeout: Optional[float] = None, **options: Any
) -> Explanation: ...
def plan(
    scenario: ScenarioLike, set: Optional[Overrides] = None, *, timeout: Optional[float] = None, **options: Any
) -> Plans: ...
def capacity(
    scenario: ScenarioLike, set: Optional[Overrides] = None, *, timeout: Optional[float] = None, **options: Any
) -> dict[str, Any]: ...
def recommend(
    scenario: ScenarioLike, set: Optional[Overrides] = None, *, timeout: Optional[float] = None, **options: Any
) -> dict[str, Any]: ...
def sweep(
    sweep: Union[str, "PathLike[str]", dict[str, Any]],
    db: Union[str, "PathLike[str]", None] = None,
    *,
    set: Optional[Overrides] = None,
    timeout: Optional[float] = None,
    **options: Any,
) -> Table: ...
def price(operation: str, *, timeout: Optional[float] = None, **options: Any) -> dict[str, Any]: ...
def validate(suite: Optional[str] = None, *, timeout: Optional[float] = None, **options: Any) -> Output: ...
def problems(scenario: ScenarioLike, set: Optional[Overrides] = None) -> list[Diagnostic]: ...
def import_(
    format: str,
    file: Union[str, "PathLike[str]"],
    output: Union[str, "PathLike[str]", None] = None,
    *,
    timeout: Optional[float] = None,
    **options: Any,
) -> Optional[str]: ...
def init(kind: str, **facts: Any) -> str: ...
def help(topic: Optional[str] = None, key: Optional[str] = None) -> str: ...
def command(*words: Union[str, "PathLike[str]"], input: str = "") -> Output: ...
