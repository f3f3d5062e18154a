"""`mrc completion`: the shell's completion of commands, options and their values.

The script is generated from the parser, so it offers what exists. Everything else completes to file
names.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

SHELLS = ("bash", "zsh", "fish")

BASH = """\
_mrc() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  if [ "$COMP_CWORD" = 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}} $previous" in
{choices}
      *)
        case "${{COMP_WORDS[1]}}" in
{options}
        esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _mrc mrc
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


class Command(NamedTuple):
    """A command: its options and values, and the values of each of its options."""

    name: str
    about: str
    words: tuple[str, ...]
    choices: dict[str, tuple[str, ...]]


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `completion`, which prints no JSON."""
    parser = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete mrc",
        description='For the current shell: eval "$(mrc completion bash)"; in fish:'
        " mrc completion fish | source.",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=_run)
    return []


def _run(arguments: argparse.Namespace) -> int:
    found = list(commands_of(arguments.parser))
    print(_fish(found) if arguments.shell == "fish" else _bash(found, arguments.shell), end="")
    return 0


def commands_of(whole: argparse.ArgumentParser) -> Iterator[Command]:
    """Yield every command of a parser."""
    (action,) = (each for each in whole._actions if isinstance(each, argparse._SubParsersAction))
    about = {each.dest: each.help or "" for each in action._choices_actions}
    for name, parser in action.choices.items():
        words: list[str] = []
        choices: dict[str, tuple[str, ...]] = {}
        for each in _all_actions(parser):
            words += [option for option in each.option_strings if option.startswith("--")]
            if each.choices and each.option_strings:
                choices |= dict.fromkeys(each.option_strings, tuple(map(str, each.choices)))
            elif each.choices:
                words += map(str, each.choices)
        yield Command(name, about.get(name, ""), tuple(dict.fromkeys(words)), choices)


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The actions of a command and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _all_actions(inner)


def _bash(commands: list[Command], shell: str) -> str:
    choices = "\n".join(
        f'      "{command.name} {option}") words="{" ".join(words)}" ;;'
        for command in commands
        for option, words in command.choices.items()
    )
    options = "\n".join(
        f'          {command.name}) words="{" ".join(command.words)}" ;;' for command in commands
    )
    names = " ".join(command.name for command in commands)
    script = BASH.format(commands=names, choices=choices, options=options)
    return ZSH + script if shell == "zsh" else script


def _fish(commands: list[Command]) -> str:
    lines = []
    for command in commands:
        about = command.about.replace("'", "\\'")
        lines.append(f"complete -c mrc -n __fish_use_subcommand -f -a {command.name} -d '{about}'")
        seen = f"-n '__fish_seen_subcommand_from {command.name}'"
        for word in command.words:
            if not word.startswith("--"):
                lines.append(f"complete -c mrc {seen} -a {word}")
                continue
            taken = command.choices.get(word, ())
            of = f" -x -a '{' '.join(taken)}'" if taken else ""
            lines.append(f"complete -c mrc {seen} -l {word.removeprefix('--')}{of}")
    return "\n".join(lines) + "\n"
