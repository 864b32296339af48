"""What a command line says: every word is given its field, or a sentence about what is wrong with it."""

from collections.abc import Mapping, Sequence

from veil.cli.fields import Setting
from veil.cli.mistakes import Mistake, guess

Given = dict[str, list[str]]


def read(settings: Sequence[Setting], arguments: Sequence[str]) -> Given:
    """The words that each field was given, by its name."""
    given: Given = {}
    places = [one for one in settings if one.positional]
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            place = next((one for one in places if one.many or one.name not in given), None)
            if place is None:
                raise Mistake(f"there is no place for '{word}'. Flags begin with --, e.g. --help.")
            given.setdefault(place.name, []).append(word)
            continue
        name, equals, value = word.partition("=")
        if equals:
            words.insert(0, value)
        setting = _named(settings, name)
        given[setting.name] = _taken(setting, name, words)
    for setting in settings:
        if setting.name in given:
            _check(setting, given[setting.name])
    return given


def complete(settings: Sequence[Setting], given: Mapping[str, list[str]], example: str) -> None:
    """Refuse a command without something that it needs."""
    for one in settings:
        if one.required and one.name not in given:
            what = one.metavar if one.positional else f"{one.flag} {one.metavar}"
            raise Mistake(f"{what} is missing ({one.text}). {example}".strip())


def written(settings: Sequence[Setting], given: Mapping[str, list[str]]) -> list[str]:
    """The same for the fields as Python names them, what stands without a flag first."""
    words = [word for one in settings if one.positional for word in given.get(one.name, ())]
    for one in settings:
        if one.name not in given or one.positional:
            continue
        flag = one.field.replace("_", "-")
        if one.kind is bool:
            words.append(f"--{flag}" if given[one.name] == ["true"] else f"--no-{flag}")
        else:
            words += [f"--{flag}", *given[one.name]]
    return words


def _named(settings: Sequence[Setting], word: str) -> Setting:
    """The field of a flag."""
    flags = {one.flag: one for one in settings if not one.positional}
    flags |= {f"--no-{one.flag[2:]}": one for one in flags.values() if one.kind is bool}
    kebab = word.replace("_", "-")
    if kebab in flags:
        return flags[kebab]
    raise Mistake(f"there is no flag {word}.{guess(kebab, [*flags, '--config'])} All flags: --help.")


def _taken(setting: Setting, name: str, words: list[str]) -> list[str]:
    """The values of a flag, taken from the words behind it."""
    if setting.kind is bool:
        return ["false" if name.replace("_", "-") != setting.flag else "true"]
    count = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    if not setting.many and count == 0:
        raise Mistake(f"{name} needs a value, {setting.expected}.")
    count = count if setting.many else 1
    taken, words[:] = words[:count], words[count:]
    return taken


def _check(setting: Setting, words: list[str]) -> None:
    """Refuse values of another type."""
    name = setting.metavar.strip("[]") if setting.positional else setting.flag
    for word in words:
        if setting.choices:
            right = word in setting.choices
        elif setting.kind in (int, float):
            right = _is(setting.kind, word)
        else:
            right = True
        if not right:
            raise Mistake(f"{name} takes {setting.each}; got '{word}'.{guess(word, setting.choices)}")


def _is(kind: type, word: str) -> bool:
    try:
        kind(word)
    except ValueError:
        return False
    return True
