"""What an accelerator takes: patterns over canonical relay, matched exactly and explained.

`language` has the words, `Pattern` names a pattern and adds a predicate, a `PatternTable` holds those of a target in
their order. A partitioner indexes a function once (`Graph`) and asks `find` or `find_matches`; where nothing matches,
`match` and `closest_pattern` say why. `describe` puts a pattern into words.
"""

from .conditions import any_, where
from .describe import describe
from .explain import Explanation, closest_pattern
from .failure import Failure, FailureKind
from .language import any_of, chain, constant, op, optional, outputs, tuple_item, wildcard
from .match import Graph, Match
from .matcher import Mismatch, find, find_matches, match, roots_of
from .pattern import Clause, Failed, Pattern, PatternTable, Rejection
from .terms import Outputs, Term

__all__ = [
    "Clause",
    "Explanation",
    "Failed",
    "Failure",
    "FailureKind",
    "Graph",
    "Match",
    "Mismatch",
    "Outputs",
    "Pattern",
    "PatternTable",
    "Rejection",
    "Term",
    "any_",
    "any_of",
    "chain",
    "closest_pattern",
    "constant",
    "describe",
    "find",
    "find_matches",
    "match",
    "op",
    "optional",
    "outputs",
    "roots_of",
    "tuple_item",
    "where",
    "wildcard",
]
