"""@tool: what a docstring says of a tool and its arguments, and the declarations that are refused."""

from typing import Any

import pytest

from checkrein.errors import ConfigError
from checkrein.tools import tool


@pytest.mark.parametrize("style", ["google", "numpy", "sphinx"])
def test_docstrings(style: str) -> None:
    def google(city: str, days: int = 1) -> str:
        """Weather of a city.

        More text.

        Args:
            city: the city's name,
                as people write it.
            days (int, optional): how many days: at most 7.

        Returns:
            The weather.
        """
        return city

    def numpy(city: str, days: int = 1) -> str:
        """
        Weather of a city.

        More text.

        Parameters
        ----------
        city : str
            the city's name,
            as people write it.
        days : int, optional
            how many days: at most 7.

        Returns
        -------
        str
            The weather.
        """
        return city

    def sphinx(city: str, days: int = 1) -> str:
        """Weather of a city.

        More text.

        :param city: the city's name,
            as people write it.
        :param int days: how many days: at most 7.
        :returns: the weather
        """
        return city

    made = tool({"google": google, "numpy": numpy, "sphinx": sphinx}[style])
    assert made.description == "Weather of a city.\n\nMore text."
    properties = made.parameters["properties"]
    assert properties["city"]["description"] == "the city's name, as people write it."
    assert properties["days"]["description"] == "how many days: at most 7."


def test_docstring_words_that_only_look_like_sections_stay() -> None:
    @tool
    def fn(a: int) -> None:
        """Do it.

        Note: this is prose, with a colon.
        Args of any kind are welcome.
        """

    assert fn.description.endswith("welcome.") and "Note: this is prose" in fn.description


def unhinted(a) -> None: ...  # type: ignore[no-untyped-def]
def starred(*args: int) -> None: ...
def double(**kwargs: int) -> None: ...
def positional(a: int, /) -> None: ...
def odd(a: int, b: "threading.Lock") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def generator(a: int):  # type: ignore[no-untyped-def]
    yield a


class Machinery: ...


def custom_type(a: int, thing: Machinery) -> None: ...


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (unhinted, ("unhinted", "'a'", "type hint")),
        (starred, ("starred", "*args")),
        (double, ("double", "**kwargs")),
        (positional, ("positional", "positional-only a")),
        (odd, ("odd", "threading")),
        (custom_type, ("custom_type", "'thing'", "Machinery")),
        (generator, ("generator",)),
    ],
)
def test_declaration_errors_name_function_and_parameter(fn: Any, names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as info:
        tool(fn)
    for name in names:
        assert name in str(info.value)


def test_a_method_decorated_in_its_class_is_told_how() -> None:
    with pytest.raises(ConfigError, match=r"tool\(object.method\)"):

        class Holder:
            @tool
            def method(self, a: int) -> None: ...


def test_a_tool_is_not_made_twice() -> None:
    first = tool(name="one")(lambda: 1)
    with pytest.raises(ConfigError, match=r"'one' is a tool already"):
        tool(name="two")(first)
    assert tool(name="two", read_only=True)(first.fn).name == "two"


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a.b", "fn\n", "<lambda>"])
def test_names(name: str) -> None:
    with pytest.raises(ConfigError, match="64"):
        tool(name=name or "!")(lambda: None)
    for bad in (0, -1, float("nan")):
        with pytest.raises(ConfigError, match="timeout_s"):
            tool(name="ok", timeout_s=bad)(lambda: None)
