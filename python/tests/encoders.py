# python/tests/encoders.py: tiny encoders of texts made with transformers, with the rows, the vectors of every pooling
# and the scores of some texts.
import json
import pathlib

import torch
import transformers as hf

from families import save, values

SIZES = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 40}
WINDOWS = {"num_hidden_layers": 4, "local_attention": 6, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
           "cls_token_id": 1, "sep_token_id": 2, "max_position_embeddings": 64}


def made(name, head="Model", **changes):
    config = getattr(hf, f"{name}Config")(**{**SIZES, **changes})
    return getattr(hf, f"{name}{head}")(config)


def distilbert(head="Model", **changes):
    sizes = {"vocab_size": 31, "dim": 16, "hidden_dim": 20, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 40}
    return getattr(hf, f"DistilBert{head}")(hf.DistilBertConfig(**sizes, **changes))


SCORES = "ForSequenceClassification"
ENCODERS = {
    "bert": lambda: made("Bert"),
    "bert, without a layer above": lambda: hf.BertModel(hf.BertConfig(**SIZES), add_pooling_layer=False),
    "bert, of masked words": lambda: made("Bert", "ForMaskedLM", hidden_act="gelu_new"),
    "bert, relu": lambda: made("Bert", hidden_act="relu", type_vocab_size=1, layer_norm_eps=1e-5),
    "bert, a score": lambda: made("Bert", SCORES, num_labels=1),
    "bert, two scores": lambda: made("Bert", SCORES),
    "roberta": lambda: made("Roberta", pad_token_id=1),
    "roberta, padding of id 3": lambda: made("Roberta", pad_token_id=3, type_vocab_size=1, hidden_act="silu"),
    "roberta, a score": lambda: made("Roberta", SCORES, num_labels=1, type_vocab_size=1),
    "xlm-roberta": lambda: made("XLMRoberta", type_vocab_size=1, layer_norm_eps=1e-5),
    "xlm-roberta, three scores": lambda: made("XLMRoberta", SCORES, num_labels=3, type_vocab_size=1),
    "camembert": lambda: made("Camembert", type_vocab_size=1),
    "mpnet": lambda: made("MPNet"),
    "mpnet, long": lambda: made("MPNet", max_position_embeddings=300),
    "mpnet, a score": lambda: made("MPNet", SCORES, num_labels=1),
    "distilbert": lambda: distilbert(),
    "distilbert, a score": lambda: distilbert(SCORES, num_labels=1),
    "modernbert": lambda: made("ModernBert", **WINDOWS),
    "modernbert, layers by name": lambda: made(
        "ModernBert", **WINDOWS, layer_types=["sliding_attention", "full_attention"] * 2, hidden_activation="silu"),
    "modernbert, with biases": lambda: made(
        "ModernBert", **WINDOWS, attention_bias=True, mlp_bias=True, norm_bias=True),
    "modernbert, a score": lambda: made("ModernBert", SCORES, **WINDOWS, num_labels=1),
    "modernbert, a score of the mean": lambda: made(
        "ModernBert", SCORES, **WINDOWS, num_labels=2, classifier_pooling="mean", classifier_bias=True,
        classifier_activation="relu"),
}
# The kinds of EncoderPooling, in the order in which sentence-transformers joins them.
KINDS = ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]


def pooled(rows, mask, kind):
    """sentence-transformers' Pooling of rows [B, T, C] with a mask [B, T]."""
    wide = mask.unsqueeze(-1).to(rows.dtype)
    if kind == "cls_token":
        return rows[:, 0]
    if kind == "max_tokens":
        return rows.masked_fill(wide == 0, -1e9).max(1)[0]
    if kind == "mean_tokens":
        return (rows * wide).sum(1) / wide.sum(1).clamp(min=1e-9)
    if kind == "mean_sqrt_len_tokens":
        return (rows * wide).sum(1) / wide.sum(1).clamp(min=1e-9).sqrt()
    if kind == "weightedmean_tokens":
        weights = wide * torch.arange(1, rows.shape[1] + 1).view(1, -1, 1).to(rows.dtype)
        return (rows * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
    return rows[torch.arange(len(rows)), last]


def computed(model, texts, segments):
    """The rows of the texts, each alone, padded with zeros to a batch; the scores of a model that has them."""
    rows, scores = [], []
    for text, types in zip(texts, segments or [None] * len(texts)):
        given = {"token_type_ids": torch.tensor([types])} if types else {}
        rows.append(model.base_model(torch.tensor([text]), **given).last_hidden_state[0])
        if type(model).__name__.endswith(SCORES):
            scores.append(model(torch.tensor([text]), **given).logits)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.cat(scores) if scores else None


def write(folder, model, seed=7, lengths=(9, 1, 23, 14)):
    """The folder as transformers saves it; rows, vectors and scores, with their errors against float64."""
    folder = pathlib.Path(folder)
    save(folder, model, seed)
    if getattr(model.config, "max_position_embeddings", 0) >= 300:
        lengths = (*lengths, 280)
    padding = model.config.pad_token_id
    texts = [torch.randint(4, model.config.vocab_size, (n,)).tolist() for n in lengths]
    texts[2][5] = padding  # where a text has it, it is a token like others; RoBERTa does not count it
    longest = max(map(len, texts))
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
    record, segments = {"texts": texts}, None
    if getattr(model.config, "type_vocab_size", 1) > 1:
        segments = record["segments"] = [[int(i > 6) for i in range(len(text))] for text in texts]
    with torch.no_grad():
        rows, scores = computed(model, texts, segments)
        true_rows, true_scores = computed(model.double(), texts, segments)

    def beside(x, truth):
        return {**values(x), "error": (x.double() - truth).abs().max().item()}

    record["rows"] = beside(rows[mask.bool()], true_rows[mask.bool()])
    record["vectors"] = {kind: beside(pooled(rows, mask, kind), pooled(true_rows, mask, kind)) for kind in KINDS}
    if scores is not None:
        record["scores"] = beside(scores, true_scores)
    (folder / "encoded.json").write_text(json.dumps(record) + "\n")
