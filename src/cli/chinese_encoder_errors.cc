// src/cli/chinese_encoder_errors.cc: lists the errors of encoders of texts, attn embed and attn rank in Chinese.
#include "cli/chinese.h"

namespace attn::cli {
namespace {

constexpr Translation kErrors[] = {
    {"EncoderConfig: {} is {}; it must be from {} to {}", "EncoderConfig：{0} 是 {1}；必须在 {2} 到 {3} 之间"},
    {"EncoderConfig: {} is {}; it must be above 0, and finite", "EncoderConfig：{0} 是 {1}；必须大于 0 且有限"},
    {"EncoderConfig: heads is {}; it must divide width ({})", "EncoderConfig：heads 是 {0}；必须整除 width（{1}）"},
    {"EncoderConfig: positions is {}; it must be above padding_id + 1 ({})",
     "EncoderConfig：positions 是 {0}；必须大于 padding_id + 1（{1}）"},
    {"EncoderConfig: width / heads is {}; rotary positions need an even one",
     "EncoderConfig：width / heads 是 {0}；旋转位置编码需要偶数"},
    {"TextEncoder::load: dtype is {}; it must be f32, f64, bf16 or f16",
     "TextEncoder::load：dtype 是 {0}；必须是 f32、f64、bf16 或 f16"},
    {"TextEncoder::load: the activation of scores is {}; it must be Identity or Sigmoid",
     "TextEncoder::load：分数的激活函数是 {0}；必须是 Identity 或 Sigmoid"},
    {"{}: there is no Transformer", "{0}：没有 Transformer"},
    {"{}: there is no Pooling", "{0}：没有 Pooling"},
};

/// The texts in the marked holes of the errors.
constexpr Translation kReasons[] = {
    {"an encoder of texts is bert, roberta, xlm-roberta, camembert, mpnet, distilbert or modernbert",
     "文本编码器是 bert、roberta、xlm-roberta、camembert、mpnet、distilbert 或 modernbert"},
    {"it must be gelu, gelu_new, gelu_pytorch_tanh, relu, silu or tanh",
     "必须是 gelu、gelu_new、gelu_pytorch_tanh、relu、silu 或 tanh"},
    {"it must be absolute", "必须是 absolute"},
    {"it must be default", "必须是 default"},
    {"it must be null", "必须是 null"},
    {"it must be cls or mean", "必须是 cls 或 mean"},
    {"it must be Tanh or Identity", "必须是 Tanh 或 Identity"},
    {"it must be at least 1", "必须不小于 1"},
    {"it must be at least 2", "必须不小于 2"},
    {"it must be null, or at least 1", "必须是 null，或不小于 1"},
    {"it must name full_attention or sliding_attention for each of num_hidden_layers, {}",
     "必须为 num_hidden_layers 的每一层（共 {0} 层）写明 full_attention 或 sliding_attention"},
    {"it must name a text each", "每一项都必须是文本"},
    {"it must be one of prompts", "必须是 prompts 之一"},
    {"it must be a folder inside of the model's", "必须是模型文件夹之内的文件夹"},
    {"the order is Transformer, Pooling, Dense, Normalize", "顺序是 Transformer、Pooling、Dense、Normalize"},
    {"a module is a Transformer, Pooling, Dense or Normalize", "模块只能是 Transformer、Pooling、Dense 或 Normalize"},
    {"a vector has {} numbers", "一个向量有 {0} 个数"},
    {"it must be cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken",
     "必须是 cls、max、mean、mean_sqrt_len_tokens、weightedmean 或 lasttoken"},
};

}  // namespace

std::span<const Translation> chinese_encoder_errors() { return kErrors; }
std::span<const Translation> chinese_encoder_reasons() { return kReasons; }

}  // namespace attn::cli
