"""Writes goldens.json: pairs of texts and their scores by sacrebleu, rouge-score and jiwer.

    python -m venv v && v/bin/pip install sacrebleu==2.6.0 rouge-score==0.1.2 jiwer==4.0.0
    v/bin/python text/scores/testdata/gen_goldens.py

The stems of words are those of NLTK's stemmer, which rouge-score uses.
"""

import json
import pathlib
import random

import jiwer
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF

HERE = pathlib.Path(__file__).resolve().parent
ROUGE = ["rouge1", "rouge2", "rougeL", "rougeLsum"]

WORDS = """
the a of to in is was and it he she they that for on with as at by from
cats running happily national relational hopping agreed flies dying skies generalizations
enjoying controlled conditional organization effectively possibilities caresses news
The New York U.S.A. e.g. don't it's O'Neil state-of-the-art co-operate -- - ... .
1,000.50 3.14 1990-2000 5-year 10% $99.99 #1 @user 1st -5 7. 8, ,9 .5 10.
(hello) [x] {y} <skipped> &quot;quoted&quot; &amp; &amp;lt; &lt;tag&gt; a/b c:d e;f g? h! \\ ^ ~ ` | _
na\u00efve caf\u00e9 e\u0301 \u0130stanbul \u212aelvin stra\u00dfe \u03a3\u0391\u03a3 \u01c5 \ufb01n
\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440, \u0430\u0431\u0432. \u00ab\u0434\u0430\u00bb
\u4f60\u597d\u4e16\u754c\u3002 \u6771\u4eac \u30ab\u30bf \u3053\u3093\u306b\u3061\u306f\uff01 \uff11\uff12
\u0645\u0631\u062d\u0628\u0627\u060c \u05e9\u05c1\u05b8\u05dc \u0939\u093f\u0928\u094d\u0926\u0940\u0964 \u0e44\u0e17\u0e22 \ud55c\uad6d\uc5b4
\U0001f600 \U0001f469\u200d\U0001f4bb \u2764\ufe0f \u20ac5 \u00bd \u00b2 \u2167 \u0661\u066b\u0662 \u2014 \u201cx\u201d \u2026 \u00a7 \u2260
"""
PIECES = WORDS.split()
SPACES = [" "] * 30 + [
    "  ",
    "\t",
    "\n",
    "\n\n",
    "-\n",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\x1f",
    "\r\n",
    "",
    "\x85",
]
EDGES = [
    ("", ""),
    ("", "a word"),
    ("a word", ""),
    (" \n ", "\t"),
    ("a", "a"),
    ("a", "b"),
    ("a b", "a b"),
    ("the cat sat", "the cat sat"),
    ("the cat sat on the mat", "the cat sat on the mat"),
    ("the the the the the the the", "the cat is on the mat"),
    ("short", "a much longer reference than what was said here"),
    ("a much longer text than what was wanted here", "short"),
    ("line one\nline two\n\nline three", "line two\nline one and three"),
    ("\u4f60\u597d", "\u4f60\u597d\u3002"),
    (".", ". "),
    ("9.", "9"),
]


def text(rng: random.Random) -> str:
    """Returns a text of pieces in many scripts."""
    out = ""
    pool = rng.sample(PIECES, rng.choice([4, 12, 40]))
    for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 13, 21])):
        out += rng.choice(pool) + rng.choice(SPACES)
    return out


def changed(rng: random.Random, was: str) -> str:
    """Returns a text that shares much with another."""
    words = was.split(" ")
    for _ in range(rng.randrange(1 + len(words) // 2)):
        at = rng.randrange(len(words))
        match rng.randrange(4):
            case 0:
                words[at] = rng.choice(PIECES)
            case 1:
                words.insert(at, rng.choice(PIECES))
            case 2 if len(words) > 1:
                del words[at]
            case _:
                to = rng.randrange(len(words))
                words[at], words[to] = words[to], words[at]
    return " ".join(words)


def rates(got: list[str], want: list[str]) -> dict[str, float]:
    """Returns the rates of errors of texts whose words are one space apart; none if nothing is wanted."""
    got, want = ([" ".join(t.split()) for t in texts] for texts in (got, want))
    if not any(want):
        return {}
    return {"wer": jiwer.wer(want, got), "cer": jiwer.cer(want, got)}


def main() -> None:
    """Writes the file."""
    rng = random.Random(20260229)
    pairs = list(EDGES)
    while len(pairs) < 500:
        want = text(rng)
        pairs.append((changed(rng, want) if rng.random() < 0.85 else text(rng), want))
    tokenizers = {
        "bleu": "13a",
        "bleu_intl": "intl",
        "bleu_char": "char",
        "bleu_none": "none",
    }
    corpus = {name: BLEU(tokenize=t) for name, t in tokenizers.items()}
    corpus |= {"chrf": CHRF(), "chrf++": CHRF(word_order=2)}
    single = corpus | {
        n: BLEU(tokenize=t, effective_order=True) for n, t in tokenizers.items()
    }
    rouges = {"": RougeScorer(ROUGE), "_stem": RougeScorer(ROUGE, use_stemmer=True)}
    examples = []
    for got, want in pairs:
        scores = {
            name: m.sentence_score(got, [want]).score for name, m in single.items()
        }
        for suffix, scorer in rouges.items():
            scores |= {
                name + suffix: s.fmeasure for name, s in scorer.score(want, got).items()
            }
        scores |= rates([got], [want])
        examples.append({"text": got, "reference": want, "scores": scores})
    corpora = []
    for first, last in [
        (0, 500),
        (0, 16),
        (16, 40),
        (40, 50),
        (100, 300),
        (7, 8),
        (4, 6),
    ]:
        got, want = ([p[i] for p in pairs[first:last]] for i in (0, 1))
        scores = {
            name: m.corpus_score(got, [want]).score for name, m in corpus.items()
        } | rates(got, want)
        corpora.append({"first": first, "last": last, "scores": scores})
    stemmer = PorterStemmer()
    ends = """s es ies sses ed ied eed ing ly y ational tional enci anci izer bli abli alli entli eli ousli ization
        ation ator alism iveness fulness ousness aliti iviti biliti fulli logi icate ative alize iciti ical ful ness al
        ance ence er ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize e ll lled lling tted
        zzing ssed yed ying 1 22 at ated bled izing"""
    words = set(" ".join(PIECES).lower().split())
    words |= {
        "sky",
        "lying",
        "tying",
        "innings",
        "outing",
        "cannings",
        "howe",
        "proceed",
        "exceed",
        "succeed",
    }
    for _ in range(3000):
        stem = "".join(
            rng.choice("bcdfghlmnprstvwxyzaaeeiiouuyy")
            for _ in range(rng.randrange(1, 7))
        )
        words.add(stem + rng.choice(ends.split()) + rng.choice(["", "", "s", "ly"]))
    words = sorted(w for w in words if w.isascii() and w.isalnum())
    stems = {w: stemmer.stem(w) for w in words}
    out = {"examples": examples, "corpora": corpora, "stems": stems}
    (HERE / "goldens.json").write_text(
        json.dumps(out, indent=0) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
