# python/attn/_explain.py: defines attn.explain: the steps of attention on a text, for the terminal,
# a notebook or a picture.
"""The library computes the numbers and drawings; this module shows them where Python's users expect them."""

import inspect
import json
import operator
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex, overload

from attn import _arguments, _core
from attn._tracing import trace

ExplainStep = _core.ExplainStep


class _NoStep(KeyError, ValueError):
    """A KeyError, as mappings raise, that is also a ValueError, as attn raises elsewhere. Its text is one line; that of
    a plain KeyError would be in quotes."""

    __str__ = Exception.__str__


class _NoNumber(IndexError, ValueError):
    """An IndexError, as sequences raise, that is also a ValueError."""


class Explanation:
    """A run of attention, step by step.

    `print(explanation)` draws tables; a notebook shows a drawing; `show()` opens a page to play with in the browser;
    `plot()` makes a heat map with matplotlib.

    >>> import attn
    >>> explanation = attn.explain("Life is short", mask="causal")
    >>> explanation["weights"].values.round(2)
    array([[1.  , 0.  , 0.  ],
           [0.42, 0.58, 0.  ],
           [0.3 , 0.36, 0.33]], dtype=float32)
    >>> [step.name for step in explanation][:4]
    ['tokens', 'ids', 'x', 'q']
    """

    def __init__(self, run: _core.Explanation, not_on_page: str | None = None) -> None:
        self._run = run
        self._not_on_page = not_on_page  # why `html` refuses

    @property
    def texts(self) -> list[str]:
        """The texts, one for each item of the batch."""
        return self._run.texts

    @property
    def to(self) -> str | None:
        """In cross-attention the text of the keys and values; else None."""
        return self._run.to

    @property
    def mask(self) -> str:
        """The mask as text; empty for attn.Mask.all(), the default."""
        return self._run.mask

    @property
    def options(self) -> dict[str, Any]:
        """All options except matrices and functions. Without these, and without a mask or score_mod made of tensors
        (whose text does not hold their values), `attn.explain(text, **options)` is the same run. Empty with relative,
        normalizer, weight_mod, linear, latent or tangent."""
        return json.loads(self._run.options or "{}")

    @property
    def steps(self) -> list[ExplainStep]:
        """The steps in order, each with name, formula, values, rows, columns."""
        return self._run.steps

    @property
    def parameters(self) -> list[ExplainStep]:
        """W_q, W_k, W_v, W_O and the matrices of the score, as steps."""
        return self._run.parameters

    def __len__(self) -> int:
        return len(self._run.steps)

    def __iter__(self) -> Iterator[ExplainStep]:
        return iter(self._run.steps)

    def __contains__(self, name: object) -> bool:
        """Returns whether there is a step of that name."""
        return isinstance(name, str) and any(name == step.name for step in self._run.steps)

    @overload
    def __getitem__(self, name: str | int) -> ExplainStep: ...
    @overload
    def __getitem__(self, name: slice) -> list[ExplainStep]: ...
    def __getitem__(self, name: str | int | slice) -> ExplainStep | list[ExplainStep]:
        """Returns the step of that name, or at that index (KeyError or IndexError if there is none); a list for a
        slice."""
        if not isinstance(name, str):
            try:
                return self._run.steps[name]
            except IndexError:
                raise _NoNumber(
                    f"Explanation: there is no step {_arguments.shown(name)}; there are {len(self)}, from 0") from None
            except TypeError:
                raise TypeError(f"Explanation: a {type(name).__name__} is given; "
                                "the name or the number of a step is needed") from None
        names = [step.name for step in self]
        if name not in names:
            import difflib  # imported here because it takes 8 ms, for which a correct name need not wait

            meant = difflib.get_close_matches(name[:100], names, n=1)
            raise _NoStep('Explanation: there is no step '
                          f'"{_arguments.shown(name)}"{f"; did you mean {meant[0]}?" if meant else ";"} there are '
                          f'{", ".join(names)}')
        return self._run.step(name)

    def text(self, width: int = 100, colour: str = "none") -> str:
        """Returns tables of at most `width` columns; colour is "none", "palette" (256 colours) or "rgb"."""
        return self._run.text(width, colour)

    def svg(self) -> str:
        """Returns a self-contained SVG, for light and dark pages."""
        return self._run.svg()

    def json(self) -> str:
        """Returns JSON with every number in full precision: it reads back to the same bits."""
        return self._run.json()

    def html(self) -> str:
        """Returns a page to play with in a browser, one self-contained text, that begins with this text and these
        options. It computes with this library and asks no server for anything.

        Raises ValueError for an explanation with matrices of your own (they can be dropped onto the page as a file),
        or whose mask or score_mod is made of tensors."""
        from attn import _page

        if self._not_on_page:
            raise ValueError(f"Explanation.html: {self._not_on_page}")
        return _page.filled(_page.start_of(self))

    def show(self, path: str | os.PathLike[str] | None = None, height: int = 800) -> str | None:
        """Shows the page of `html`: in a notebook without `path` inline, `height` pixels high; else in the browser,
        from a file at `path` (by default a temporary one). Returns the file's path; None if the page is inline.

        Raises what `html` raises; TypeError or ValueError for a wrong path or height; OSError if the file cannot be
        written."""
        from attn import _page

        return _page.show(self.html(), path, height)

    def plot(self, step: str | int = "weights", ax: Any = None, batch: SupportsIndex = 0, head: SupportsIndex = 0,
             **options: Any) -> Any:
        """Draws a heat map of a step of pairs (scores, scaled, mask, weights) with matplotlib; returns its axes.
        `options` go to `attn.plot.heat_map`."""
        from attn.plot import heat_map

        shown = self[step]
        if shown.kind not in ("pairs", "weights"):
            names = ", ".join(each.name for each in self if each.kind in ("pairs", "weights"))
            raise ValueError(f"Explanation.plot: {_arguments.shown(step)} is a {shown.kind}; one of {names} is needed")
        values = shown.values
        for name, index, count in (("batch", batch, len(shown.rows)),
                                   ("head", head, values.shape[-3] if values.ndim > 2 else 1)):
            try:
                there = 0 <= operator.index(index) < count
            except TypeError:
                there = False
            if not there:
                raise ValueError(f"Explanation.plot: {name} is {_arguments.shown(index)}; "
                                 f"it must be from 0 to {count - 1}")
        for index in (batch, head)[4 - values.ndim :] if values.ndim > 2 else ():
            values = values[index]
        return heat_map(values, rows=shown.rows[batch], columns=shown.columns[batch], ax=ax, title=shown.name,
                        **options)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        names = " -> ".join(step.name for step in self)
        return f"<attn.Explanation of {', '.join(map(repr, self.texts))}: {names}>"

    def _repr_html_(self) -> str:
        return self.svg()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text(width=_columns()))


def _not_on_page(matrices: Sequence[Any], mask: Any, score_mod: Any) -> str | None:
    """Says what a page, which begins with texts and options, cannot hold; None if it holds all."""
    if any(matrix is not None for matrix in matrices):
        return "the page draws its own matrices; yours can be dropped onto it as a safetensors file"
    if isinstance(mask, _core.Mask) and mask.arrays:
        return (f'the page takes a mask as text, without the tensors of yours, "{mask}"; one of causal, window(left, '
                "right), prefix(n), all, none with & | ~ is needed")
    if score_mod is not None and score_mod.arrays:
        return ("the page takes score_mod as text, without the tensors that yours looks up; an expression of s, b, h, "
                "i, j alone is needed")
    return None


def _columns() -> int:
    try:
        return max(20, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError, AttributeError):
        return 100


def _language(x: Any) -> Any:
    """Maps the names that locales use for Chinese and English to "zh" and "en"; returns everything else unchanged."""
    name = re.split(r"[-_.@]", x.lower())[0] if isinstance(x, str) else x
    return ({"cn": "zh", "chinese": "zh", "中文": "zh", "english": "en"}.get(name, name if name in ("en", "zh") else x)
            if isinstance(x, str) else x)


def explain(
    text: str | Sequence[str],
    *,
    to: str | None = None,
    score: str = "scaled_dot",
    mask: _core.Mask | str | None = None,
    heads: int = 1,
    dim: int = 3,
    dk: int = 2,
    dv: int = 4,
    vocabulary: int = 50000,
    seed: int = 123,
    positions: str = "none",
    tokens: str = "auto",
    cut_words: Callable[[str], Sequence[str]] | None = None,
    w_query: Any = None,
    w_key: Any = None,
    w_value: Any = None,
    embedding: Any = None,
    output_projection: bool = False,
    w_output: Any = None,
    learned_query: bool = False,
    query_vector: Any = None,
    score_w_query: Any = None,
    score_w_key: Any = None,
    score_w: Any = None,
    softcap: float = 0.0,
    temperature: float = 1.0,
    bias: str | None = None,
    score_mod: Any = None,
    sink: float | None = None,
    dropout_p: float = 0.0,
    weights: str | _core.Weights | None = None,
    packed: bool = False,
    cache: str | None = None,
    query: int | None = None,
    gradients: bool = False,
    relative: str | None = None,
    normalizer: str | None = None,
    weight_mod: Any = None,
    linear: str | None = None,
    latent: int | None = None,
    tangent: bool = False,
    only: str | Sequence[str] | None = None,
    language: str = "en",
    **unknown: NoReturn,
) -> Explanation:
    """Runs attention on a text and keeps every step; several texts (a list) make a batch, padded on the right.

    text       a text, or a list of texts
    to         cross-attention: keys and values come from this text
    score      "scaled_dot", "dot", "general" or "additive"
    mask       an attn.Mask or its text: "causal & window(2, 0)"
    heads      number of heads; dim: size of an embedding, dk: of a query and a key, dv: of a value
    vocabulary rows of the random embedding
    seed       of the random embedding and matrices, as torch.manual_seed
    positions  "none", "sinusoidal" or "rotary"
    tokens     "words", "characters" or "auto"; cut_words: your own rule for "words", a function of a text that gives
               its words
    w_query    your own matrices [dim, heads * dk] instead of random ones: with w_key, w_value;
               `embedding` [ids, dim] may come alone
    output_projection  the joined heads times W_O, drawn after W_v; w_output: your own [heads * dv, any]
    learned_query  one learned vector u is the query instead of the tokens, q = u W_q (attention pooling), drawn last
               with randn; query_vector: your own of `dim` numbers
    score_w    your own matrices of the score: "general" score_w [dk, dk]; "additive" score_w_query, score_w_key
               [n, dk], score_w [n]
    softcap    also temperature, score_mod and dropout_p (counter-based, with `seed`): as in attn.attention.
               bias: "alibi", "alibi_symmetric" (by absolute distance) or "relative" (a table drawn from `seed`).
               sink: a logit, the same for each head. Each of these is a step of its own
    weights    as in attn.attention: a step shows the requested weights
    packed     a step compares the result with that of the same sentences, packed one after the other;
               cache "same" or "int8": steps show what a cache returns
    query      this row (from 0; -1 is the last) is worked out: every product and sum
    gradients  shows the backward pass too, for the loss 1/2 sum of context^2 (with W_O: of output^2):
               the gradients of the context, v, the weights, the scores, q and k
    relative   products with a table of relative positions, added to the scores: "distance(2, 2)", "log_buckets(4, 8)",
               "picture_rows(2, 3)" or "picture_columns(3)", after it .reversed(), of_keys, operand (a drawn vector is
               added to the rows that are multiplied) and scale=1; + joins several. The tables are drawn
    normalizer also weight_mod: as in attn.attention. They and `relative` do not go with `gradients`
    linear     linear attention instead: "plain", "decay", "delta" or "gated_delta"; `query` is the row that is worked
               out. latent: latent attention instead, with latent rows of that many numbers. tangent: forward mode.
               Only one of these, with one text
    only       names of the steps that text, JSON and drawing show: "weights,context" or a list
    language   of titles and notes: "en" or "zh" ("cn", "zh-CN")

    The defaults are those of a beginner's example: Embedding(50000, 3), then w_query and w_key rand(3, 2), w_value
    rand(3, 4). Scores are `attention_scores`, weights and context `attention`: the same bits.

    Raises ValueError (no token, more than 2048 tokens, a query out of range, matrices that do not fit), TypeError.

    >>> import attn
    >>> attn.explain("Life is short")["tokens"].rows
    [['Life', 'is', 'short']]
    """
    if unknown:
        _arguments.check("explain", unknown, _NAMES)
    expression = None if score_mod is None else trace(score_mod)
    weight_expression = None if weight_mod is None else trace(weight_mod)
    shape = getattr(w_query, "shape", ())
    shape = list(shape) if isinstance(shape, (tuple, list)) else []
    if dim != 3 and len(shape) == 2 and shape[0] != dim:
        transposed = "; the three look transposed: give their transposes" if shape[1] == dim else ""
        raise ValueError(f"explain: w_query has shape {shape}, but dim is {dim}{transposed}")
    other = tangent or any(x is not None for x in (relative, normalizer, weight_mod, linear, latent))
    return Explanation(
        _core.explain(
            text,
            to=to,
            score=score,
            mask=mask,
            heads=heads,
            dim=dim,
            dk=dk,
            dv=dv,
            vocabulary=vocabulary,
            seed=seed,
            positions=positions,
            tokens=tokens,
            cut_words=cut_words,
            w_query=w_query,
            w_key=w_key,
            w_value=w_value,
            embedding=embedding,
            output_projection=output_projection,
            w_output=w_output,
            learned_query=learned_query,
            query_vector=query_vector,
            score_w_query=score_w_query,
            score_w_key=score_w_key,
            score_w=score_w,
            softcap=softcap,
            temperature=temperature,
            bias=bias,
            score_mod=expression,
            sink=sink,
            dropout_p=dropout_p,
            weights=weights,
            packed=packed,
            cache=cache,
            query=query,
            gradients=gradients,
            relative=relative,
            normalizer=normalizer,
            weight_mod=weight_expression,
            linear=linear,
            latent=latent,
            tangent=tangent,
            only=only,
            language=_language(language),
        ),
        not_on_page="the page shows softmax attention" if other else _not_on_page(
            (w_query, w_key, w_value, embedding, w_output, query_vector, score_w_query, score_w_key, score_w), mask,
            expression),
    )


_NAMES = tuple(inspect.signature(explain).parameters)[1:-1]
