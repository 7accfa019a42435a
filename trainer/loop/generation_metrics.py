"""How close generated answers are to the expected ones: ROUGE (Lin 2004), BLEU-4 (Papineni et al. 2002).

Both come from libraries that reproduce the published figures, rouge-score and sacrebleu, over the same words:
sacrebleu's tokenization that also takes every Chinese character as a word. Figures lie between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import Tokenizer as WordTokenizer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh

#: Metric name → rouge-score's name.
ROUGE = {"rouge1": "rouge1", "rouge2": "rouge2", "rougel": "rougeL"}


class _Words(WordTokenizer):
    """Lower-case words, and single Chinese characters."""

    def __init__(self) -> None:
        self._split = TokenizerZh()

    def tokenize(self, text: str) -> list[str]:
        return self._split(text.lower()).split()


def generation_metrics(generated: Sequence[str], expected: Sequence[str]) -> dict[str, float]:
    """`rouge1`, `rouge2`, `rougel`: mean F1 of the texts; `bleu4`: of the whole set.

    Args:
        generated, expected: as many texts, at least one.
    """
    scorer = RougeScorer(list(ROUGE.values()), tokenizer=_Words())
    scores = [scorer.score(target, text) for text, target in zip(generated, expected, strict=True)]
    rouge = {name: sum(score[key].fmeasure for score in scores) / len(scores) for name, key in ROUGE.items()}
    bleu = BLEU(tokenize="zh", effective_order=True).corpus_score(list(generated), [list(expected)])
    return {**rouge, "bleu4": bleu.score / 100}
