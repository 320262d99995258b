"""The command line as the table has it: an option for each setting, and help by section."""

from __future__ import annotations

import copy
import enum
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click
from click.core import ParameterSource

from uvicorn.config._declare import Row
from uvicorn.config._values import Number, Switch, Text, accepts, check_one, values_of
from uvicorn.config.errors import SETTING_FAILURE, SettingError
from uvicorn.config.settings import PREFIX, ROWS

GENERAL = "General"
"""The section of options beside the settings."""


class HeaderError(click.BadParameter):
    """A malformed ``--header``. Upstream ends with this exit status, and not with that of a wrong option."""

    exit_code = SETTING_FAILURE


class SettingOption(click.Option):
    """The option of one setting."""

    def __init__(self, row: Row, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Name the variable, if the value comes from there."""
        if ctx is not None and ctx.get_parameter_source(self.name or "") is ParameterSource.ENVIRONMENT:
            return f"{PREFIX}{(self.name or '').upper()}"
        return super().get_error_hint(ctx)


class SettingType(click.ParamType):  # type: ignore[type-arg]
    """The values that the table says one setting takes; shells and help see those of a type of click's."""

    def __init__(self, row: Row, like: click.ParamType[Any]) -> None:
        self.row = row
        self.like = like
        self.name = like.name
        self.choices = like.choices if isinstance(like, click.Choice) else ()
        self.exists = row.exists

    def split_envvar_value(self, rv: str) -> list[str]:
        """Cut a variable where its values end."""
        return rv.split("\n" if self.row.lines else self.like.envvar_list_splitter)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as the setting has it."""
        try:
            return check_one(self.row, value)
        except SettingError as exc:
            error = HeaderError if self.row.parse else click.BadParameter
            # Before that click names the option, or the variable.
            name = self.row.name
            message = str(exc).removeprefix(f"{name} ").removeprefix(f"Cannot use {name}=")
            raise error(message, ctx=ctx, param=param) from None

    def get_metavar(self, *args: Any, **kwargs: Any) -> str | None:
        """Show the choices."""
        return self.like.get_metavar(*args, **kwargs)

    def shell_complete(self, *args: Any, **kwargs: Any) -> Any:
        """Offer the choices, or the files."""
        return self.like.shell_complete(*args, **kwargs)


class SwitchType(SettingType, click.types.BoolParamType):
    """The same for a flag, which click knows by its class."""


def option_of(row: Row) -> click.Option:
    """Return the option of one setting."""
    flag, values = row.option, values_of(row)
    details: dict[str, Any] = {"help": _first_sentence(row.help)}
    if isinstance(values, Switch) and not row.valued:
        details.update(is_flag=True, default=row.default, type=SwitchType(row, click.BOOL))
        if row.default is not False:
            flag += "/--no-" + flag.removeprefix("--")
    elif row.multiple:
        details.update(multiple=True, type=SettingType(row, _click_type(row)))
    else:
        default = _click_default(row.default)
        details.update(type=SettingType(row, _click_type(row)), default=default, show_default=default not in (None, ""))
    if row.parse:
        details["callback"] = lambda ctx, param, value: list(value)
    if row.names:
        numbers = ["INTEGER"] if isinstance(values, Number) else []
        details["metavar"] = f"[{'|'.join([*numbers, *row.names])}]"
    return SettingOption(row, [flag, row.name], **details)


def _click_type(row: Row) -> click.ParamType[Any]:
    """Return the type that upstream's options have, or would have."""
    values = values_of(row)
    if row.exists:
        return click.Path()
    if isinstance(values, Switch):
        return click.BOOL
    if isinstance(values, Number):
        return click.INT if values.is_whole else click.FLOAT
    return click.Choice(values.only) if isinstance(values, Text) and values.only else click.STRING


def _click_default(default: Any) -> Any:
    """Return the default as the command line can show it: numbers without the name of their constant, no objects."""
    if isinstance(default, enum.IntEnum):
        return int(default)
    return default if isinstance(default, (bool, int, float, str)) else None


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


class TableCommand(click.Command):
    """The command whose parameters are those of the table, made when they are first asked for.

    Programs that import the package to call ``run`` never ask. Help is grouped by section, and in colour on a terminal
    unless `NO_COLOR` is set.
    """

    def __init__(self, name: str, parameters: Callable[[], Iterable[click.Parameter]], **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._parameters = parameters
        del self.params

    def __getattr__(self, name: str) -> Any:
        if name != "params":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.params = [*self._parameters(), _help_section()]
        return self.params

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Leave colours out where the user does not want any."""
        if os.environ.get("NO_COLOR"):
            kwargs.setdefault("color", False)
        return super().make_context(*args, **kwargs)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        for section, params in by_section(self.get_params(ctx)).items():
            _write(ctx, formatter, section, params)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Say how to see more."""
        formatter.write_paragraph()
        formatter.write_text("--help-section NAME explains the options of one section in full.")


def by_section(params: Iterable[click.Parameter]) -> dict[str, list[click.Parameter]]:
    """Return options by section: general ones first, then in the order of the table."""
    found: dict[str, list[click.Parameter]] = {GENERAL: []}
    for param in params:
        section = param.row.section if isinstance(param, SettingOption) else GENERAL
        found.setdefault(section, []).append(param)
    return found


def _help_section() -> click.Option:
    sections = dict.fromkeys([GENERAL, *(row.section for row in ROWS.values() if row.cli)])
    return click.Option(
        ["--help-section"],
        type=click.Choice([section.lower() for section in sections], case_sensitive=False),
        metavar="NAME",
        is_eager=True,
        expose_value=False,
        allow_from_autoenv=False,
        callback=_show_section,
        help=f"Explain the options of one section and exit: {', '.join(section.lower() for section in sections)}.",
    )


def _show_section(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    if name is None or ctx.resilient_parsing:
        return
    formatter = ctx.make_formatter()
    for section, params in by_section(ctx.command.get_params(ctx)).items():
        if section.lower() == name:
            _write(ctx, formatter, section, map(_in_full, params))
    click.echo(formatter.getvalue().strip("\n"), color=ctx.color)
    ctx.exit()


def _in_full(param: click.Parameter) -> click.Parameter:
    """Return an option whose help is all that the table says."""
    if not isinstance(param, SettingOption):
        return param
    row, full = param.row, copy.copy(param)
    full.help = row.help
    has_bounds = (row.above, row.minimum, row.maximum) != (None, None, None)
    if row.form or (isinstance(values_of(row), Number) and has_bounds):
        full.help += f" Accepts {accepts(row, is_command=True)}."
    return full


def _write(ctx: click.Context, formatter: click.HelpFormatter, section: str, params: Iterable[click.Parameter]) -> None:
    options = [param for param in params if isinstance(param, click.Option)]
    records = [record for param in options if (record := param.get_help_record(ctx)) is not None]
    with formatter.section(click.style(section, bold=True)):
        formatter.write_dl([(click.style(flags, fg="cyan"), text) for flags, text in records])


def misspelt_variables(environ: Mapping[str, str], params: Iterable[click.Parameter]) -> Iterator[tuple[str, str]]:
    """Give each variable that looks like that of a setting but is none, and the one that was probably meant.

    Other programs may have variables with this prefix, so one that resembles no setting's is left alone.
    """
    names = [param.name.upper() for param in params if param.name]
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in names)
    if not unknown:
        return
    import difflib  # only where there is one

    plain = {name.replace("_", ""): name for name in names}
    for name in unknown:
        near = difflib.get_close_matches(name.removeprefix(PREFIX).replace("_", ""), plain, n=1, cutoff=0.75)
        if near:
            yield name, PREFIX + plain[near[0]]
