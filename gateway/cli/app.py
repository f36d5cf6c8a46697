"""Puts the commands together. Building it imports the commands' own modules and nothing behind them."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli import (
    answer,
    audit,
    cancel,
    doctor,
    inbox,
    log,
    migrate,
    principal,
    reconcile,
    restart,
    session,
    show,
    start,
    state,
    submit,
    tool,
    watch,
)
from gateway.cli.output import standard_output


def build() -> typer.Typer:
    """The whole command line."""
    app = _group("An interlock between proposals to act and the tools that act on the world.")
    app.callback()(_whole)
    app.command("up")(start.up)
    app.command("run")(start.run)
    app.command("restart")(restart.restart)
    app.command("demo")(start.demo)
    app.command("bench")(start.bench)
    app.add_typer(_sessions(), name="sessions")
    app.command("submit")(submit.submit)
    app.command("show")(show.show)
    app.command("log")(log.log)
    app.command("state")(state.state)
    app.command("watch")(watch.watch)
    app.command("inbox")(inbox.inbox)
    app.command("approve")(answer.approve)
    app.command("deny")(answer.deny)
    app.command("cancel")(cancel.cancel)
    app.add_typer(_reconcile(), name="reconcile")
    app.add_typer(_tools(), name="tools")
    app.add_typer(_principals(), name="principals")
    app.command("verify")(audit.verify)
    app.command("rebuild")(audit.rebuild)
    app.command("replay")(audit.replay)
    app.command("doctor")(doctor.doctor)
    app.command("migrate")(migrate.migrate)
    return app


def _sessions() -> typer.Typer:
    group = _group("Sessions: their mode, their owner, what happened in them.")
    group.command("open")(session.open_session)
    group.command("show")(session.show_session)
    group.command("close")(session.close_session)
    return group


def _tools() -> typer.Typer:
    group = _group("The contracts of tools.")
    group.command("list")(tool.list_tools)
    group.command("show")(tool.show_tool)
    group.command("check")(tool.check)
    group.command("add")(tool.add)
    return group


def _say_version(wanted: bool) -> None:
    if wanted:
        from interlock import __version__

        standard_output(False).text(f"interlock {__version__}")
        raise typer.Exit


def _whole(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    """An interlock between proposals to act and the tools that act on the world."""


def _reconcile() -> typer.Typer:
    group = _group("Unknown outcomes: which there are, what is known of them, and what became of them.")
    group.command("list")(reconcile.list_unresolved)
    group.command("show")(reconcile.show_unresolved)
    group.command("resolve")(reconcile.resolve)
    return group


def _principals() -> typer.Typer:
    group = _group("Who may propose, answer and operate: names, keys and rights.")
    group.command("list")(principal.list_principals)
    group.command("add")(principal.add)
    group.command("new-key")(principal.new_key)
    return group


def _group(purpose: str) -> typer.Typer:
    return typer.Typer(
        help=purpose,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
