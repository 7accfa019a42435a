"""Special tokens that are written out in the texts of records, where a chat template lets them act.

A rendered template is encoded as a whole, its special tokens read as such, as transformers does it. So a text
that has the letters of `<end_of_turn>` ends its turn.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from trainer.config.problems import Problem

FIELD = "dataset_name_or_path"


def special_text_warning(
    split: str,
    records: Iterable[tuple[str, Mapping[str, Sequence[str]]]],
    special_tokens: Collection[str],
    field: str = FIELD,
) -> Problem | None:
    """A warning when texts have special tokens in them: how many records, and the first of them.

    Args:
        split: "train" or "dev".
        records: where each lies, and its texts by the name of the field they are in.
        special_tokens: of the tokenizer.
        field: the argument that names the data.
    """
    if not special_tokens:
        return None
    pattern = re.compile("|".join(map(re.escape, sorted(special_tokens, key=len, reverse=True))))
    first = ""
    total = count = 0
    for location, texts in records:
        total += 1
        found = [
            f"{location}: {match[0]} in {name}"
            for name, values in texts.items()
            for text in values
            if (match := pattern.search(text))
        ]
        if found:
            count += 1
            first = first or found[0]
    if not count:
        return None
    msg = f"{count} of {total} records have the text of a special token in them (the first is {first});"
    msg += " under a chat template it acts as that token, so it may end a turn or begin another one"
    return Problem((field, split), msg, "Take it out of the texts unless that is meant.")
