# python/attn/_language.py: defines language models in Python: loading, generating, streams, conversations.
"""The extension computes; these classes give its options their names, their defaults and their documentation."""

import inspect
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from attn import _arguments, _core

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


@dataclass(frozen=True)
class GeneratedText:
    """A text that a language model generated; `str()` gives its text.

    text               the new text, without the prompt; "" if the model has no tokenizer
    tokens             the new ids
    finish             why it ended: "length" (as many tokens as wanted), "end" (an end token, which is not part of it),
                       "stop" (a text of `stop`, which is not part of it), "stopped" (a function of yours returned
                       False, or the result of a stream was read before its end)
    log_probabilities  of the new tokens, with log_probabilities=True; else None
    guessed            how many tokens a draft guessed; guessed_right: those that the model chose too
    """

    text: str
    tokens: list[int] = field(repr=False)
    finish: str
    log_probabilities: list[float] | None = field(repr=False)
    guessed: int = field(repr=False)
    guessed_right: int = field(repr=False)

    def __str__(self) -> str:
        return self.text


class LanguageModel(_core.LanguageModel):
    """A decoder-only language model of the families GPT-2, Llama, Mistral, Qwen, Gemma, Phi and SmolLM.

    `LanguageModel.load(path)` reads a folder of Hugging Face (config.json, model.safetensors, tokenizer.json) or a GGUF
    file. `LanguageModel(config)` makes one with random weights:

    config     a dict, as config.json of transformers has it
    dtype      "float32", "float64", "bfloat16" or "float16"
    seed       of the weights, those of the C++ library; None: the generator of attn.manual_seed
    tokenizer  an attn.Tokenizer, for text

    >>> import attn
    >>> config = {"model_type": "gpt2", "vocab_size": 10, "n_positions": 16, "n_layer": 2, "n_head": 2, "n_embd": 32}
    >>> model = attn.LanguageModel(config, seed=1)
    >>> model.logits([3, 4, 5]).shape
    (3, 10)
    >>> len(model.generate([3, 4, 5], tokens=6, temperature=0).tokens)
    6

    Attributes are tokenizer (an attn.Tokenizer, or None), config (a dict), dtype, vocab_size, context (the most tokens
    of a text), parameters (the number of weights) and path (None for random weights).

    Results do not depend on the number of threads, on other texts of the same call, or on a draft; threads may share a
    model. Long calls release the GIL, and Ctrl-C ends them. There are no gradients.
    Raises ValueError for values, TypeError for types, OSError for files that cannot be read, each with one line.
    """

    def __init__(self, config: Mapping[str, Any], *, dtype: str = "float32", seed: int | None = None,
                 tokenizer: _core.Tokenizer | None = None, **unknown: NoReturn) -> None:
        _arguments.check("LanguageModel", unknown, ("config", "dtype", "seed", "tokenizer"))
        try:
            text = json.dumps(dict(config))
        except (TypeError, ValueError, RecursionError):
            raise TypeError(f"LanguageModel: config is a {type(config).__name__}; a dict is needed, as config.json of "
                            "transformers has it") from None
        super().__init__(text, None, dtype, seed, tokenizer)

    @classmethod
    def load(cls, path: _Path, *, dtype: str | None = None, tokenizer: _core.Tokenizer | None = None,
             **unknown: NoReturn) -> "LanguageModel":
        """Reads a model: a folder with config.json, model.safetensors (or its parts) and tokenizer.json, or a GGUF file
        (of one in parts, the first).

        dtype      of the weights and the logits; None: that of the file. A GGUF file's is float32, or float16 or
                   bfloat16 if all tensors have that type; its matrices stay blocks of the mapped file, which must not
                   change
        tokenizer  instead of the one in the model's folder or file, which may then be missing. A model without a
                   tokenizer takes ids

        Raises OSError if it cannot be read, ValueError if it is damaged or of another family, with the name of what is
        missing or unknown.
        """
        _arguments.check("LanguageModel.load", unknown, ("path", "dtype", "tokenizer"))
        model = cls.__new__(cls)
        _core.LanguageModel.__init__(model, None, path, dtype, None, tokenizer)
        return model

    @property
    def config(self) -> dict[str, Any]:
        """The architecture, as config.json of transformers has it."""
        return json.loads(self._config())

    def __repr__(self) -> str:
        config = self.config
        return (f"<attn.LanguageModel {config['model_type']}, {self.parameters:,} parameters, {self.dtype}, "
                f"context {self.context}>")

    def generate(
        self,
        prompt: Any,
        *,
        tokens: int = 100,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        samples: int = 1,
        stop: str | Sequence[str] = (),
        end_tokens: Sequence[int] | None = None,
        cache: str | bool = "same",
        window: int = 0,
        sinks: int | None = None,
        model_cache: _core.ModelCache | None = None,
        draft: "LanguageModel | str | None" = None,
        draft_tokens: int | None = None,
        log_probabilities: bool = False,
        on_logits: Callable[[int, list[int], Any], Any] | None = None,
        on_token: Callable[[int, int], Any] | None = None,
        on_text: Callable[[int, str], Any] | None = None,
        **unknown: NoReturn,
    ) -> Any:
        """Continues a prompt. Returns a GeneratedText; for a list of prompts, or several samples, a list of them, where
        text n of prompt p is at p * samples + n.

        prompt       a text, ids (a list or an array [T]), or a list of texts or of ids, which run as one batch. To a
                     text the tokenizer's special tokens are added, as in transformers
        tokens       at most this many new tokens
        temperature  logits are divided by it; 0: always the most likely token
        top_k        keep only the k most likely tokens; 0: all
        top_p        keep only the fewest most likely tokens that have this probability together
        min_p        keep only tokens at least min_p times as probable as the most likely one; 0: all
        repetition_penalty  above 1: tokens that have occurred are less likely
        seed         of the draws; text n of `samples` is the one of seed + n
        samples      texts of each prompt, whose tokens are computed once
        stop         a text or several: the generated text ends before the first of them
        end_tokens   ids that end a text; None: those of the model
        cache        "same" or "int8": the storage of keys and values; False: recompute the text for each token
        window       above 0: a token sees `window` tokens up to itself and the first `sinks` (4), and the memory of the
                     others is freed
        model_cache  an attn.ModelCache with a sequence for each text: what it holds of a text is not computed again,
                     and afterwards it holds each text without its last token
        draft        a smaller LanguageModel with the same tokens, or "ngram": it guesses up to draft_tokens (7) tokens
                     that the model then computes at once. The text stays the same
        log_probabilities  also return log p of each new token: log softmax of the logits, before the options above
        on_logits    called with (index, ids, logits) before each token: the index of the text, prompt and new ids, and
                     the logits [V] as a NumPy array of the model's dtype, which it may change in place
        on_token     called with (index, token) for each new token; on_text with (index, piece) for each piece of text
                     as soon as it is final: whole characters, and nothing that `stop` may cut off. Returning False
                     ends that text

        None for an option stands for its default. The text depends on the weights, the prompt, the options and the seed
        alone, and is that of C++ and of the command `attn generate` with the same options. If it outgrows the context,
        its oldest tokens are dropped, half a context at a time.

        Ctrl-C ends the call with KeyboardInterrupt; what a function of yours raises comes out as it is.
        Raises ValueError for a prompt without tokens, ids outside the vocabulary, options out of range; TypeError.

        Source   Holtzman 2019 (1904.09751, top_p); Nguyen 2024 (2407.01082, min_p); Keskar 2019 (1909.05858, penalty);
        Xiao 2023 (2309.17453, sinks); Leviathan 2023 (2211.17192, draft).
        """
        if unknown:
            _arguments.check("generate", unknown, _NAMES)
        texts, one = _core.generate(self, prompt, _options(locals()))
        said = [GeneratedText(*text) for text in texts]
        return said[0] if one else said

    def stream(self, prompt: Any, **options: Any) -> "TextStream":
        """Continues one prompt, a piece of text at a time: `for piece in model.stream("Once"): ...`.

        `options` are those of `generate`, except on_text. The pieces joined are the text of `generate`. The model
        computes a piece when the loop needs it, so leaving the loop stops it.
        """
        _arguments.check("stream", options, [name for name in _NAMES if name != "on_text"])
        return TextStream(_core.TextGeneration(self, prompt, options))


_NAMES = tuple(inspect.signature(LanguageModel.generate).parameters)[2:-1]


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of generate among the arguments of a call."""
    return {name: given[name] for name in _NAMES if name in given}


class TextStream(Iterator[str]):
    """The pieces of a text while a language model generates it; LanguageModel.stream and Chat.stream make it.

    A step that raises, such as by Ctrl-C or a function of yours, may be repeated: the next piece is then the next one.
    """

    def __init__(self, run: _core.TextGeneration) -> None:
        if not isinstance(run, _core.TextGeneration):
            raise TypeError(f"TextStream: a {type(run).__name__} is given; LanguageModel.stream makes a stream")
        self._run = run
        self._pieces: deque[str] = deque()
        self._more = True

    def __iter__(self) -> "TextStream":
        return self

    def __next__(self) -> str:
        while not self._pieces:
            if not self._more:
                raise StopIteration
            pieces, self._more = self._step()
            self._pieces.extend(pieces)
        return self._pieces.popleft()

    def _step(self) -> tuple[list[str], bool]:
        return self._run.step()

    @property
    def result(self) -> GeneratedText:
        """The text so far; its `finish` is "stopped" as long as the text is not finished."""
        return GeneratedText(*self._run.texts()[0])


class _Answer(TextStream):
    """The pieces of an answer of a chat, which ends with the stream."""

    def __init__(self, chat: "Chat") -> None:
        self._chat = chat
        self._pieces: deque[str] = deque()
        self._more = True
        self._said: GeneratedText | None = None

    def _step(self) -> tuple[list[str], bool]:
        pieces, more = self._chat._step()
        if not more:
            self.end()
        return pieces, more

    def end(self) -> GeneratedText:
        if self._said is None:
            self._said = GeneratedText(*self._chat._answer())
            self._chat._open, self._more = None, False
        return self._said

    @property
    def result(self) -> GeneratedText:
        """The answer. If it is not finished, it ends here with the text so far."""
        return self.end()


class Chat(_core.Chat):
    """A conversation with a language model, in the chat format that it was trained on.

    model    an attn.LanguageModel with a tokenizer
    system   the system text before the first message; None: that of the model's template
    format   "chatml", "llama3", "gemma" or "mistral"; None: recognised from the template in the model's folder or file.
             Or a format of your own, a dict of texts: begin, system_begin, system_end, user_begin, user_end,
             answer_begin, end_token, answer_end (with system_in_message and trimmed, True or False)

    The other options are those of LanguageModel.generate, for each answer; answer n has seed + n. The defaults are
    those of the command `attn chat`. A cache keeps the conversation: of each turn only the new message is computed. If
    the conversation outgrows the context, its oldest messages are left out with their answers, but never the system
    text.

    >>> import attn
    >>> config = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_layer": 1, "n_head": 2, "n_embd": 32}
    >>> model = attn.LanguageModel(config, seed=1, tokenizer=attn.Tokenizer.train("Hello", "bpe", 256))
    >>> chat = attn.Chat(model, tokens=5, format={"user_begin": "Q: ", "user_end": "; ", "answer_begin": "A: "})
    >>> len(chat.say("Hello").tokens)
    5

    Attributes are format, tokens (those of the conversation, as of the last answer), computed (how many were computed
    for the last answer before its first token) and left_out (how many messages).
    Raises ValueError for a template that is none of the four, TypeError.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        system: str | None = None,
        format: str | Mapping[str, Any] | None = None,
        tokens: int = 1024,
        temperature: float = 0.7,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.05,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        cache: str = "same",
        window: int = 0,
        sinks: int | None = None,
        draft: LanguageModel | str | None = None,
        draft_tokens: int | None = None,
        log_probabilities: bool = False,
        on_logits: Callable[[int, list[int], Any], Any] | None = None,
        on_token: Callable[[int, int], Any] | None = None,
        **unknown: NoReturn,
    ) -> None:
        if unknown:
            _arguments.check("Chat", unknown, tuple(inspect.signature(Chat).parameters)[:-1])
        self._open: _Answer | None = None
        super().__init__(model, system, dict(format) if isinstance(format, Mapping) else format, _options(locals()))

    def say(self, message: str, on_text: Callable[[str], Any] | None = None) -> GeneratedText:
        """Answers a message.

        on_text  called with each piece of the answer; returning False ends the answer; the text so far stays
                 part of the conversation

        Raises ValueError for a message that the context does not hold. After any exception, Ctrl-C's too, the
        conversation is as before the message.
        """
        self._end()
        return GeneratedText(*self._say(message, on_text))

    def stream(self, message: str) -> TextStream:
        """Answers a message, a piece of text at a time: `for piece in chat.stream("Hello"): ...`.

        The answer is the one that say would give. The next message, or reading the `result` of the stream, ends it; the
        text so far stays part of the conversation. Raises as say.
        """
        self._end()
        self._ask(message)
        self._open = _Answer(self)
        return self._open

    def _end(self) -> None:
        if self._open is not None:
            self._open.end()
