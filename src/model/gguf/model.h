// src/model/gguf/model.h: makes a language model of a GGUF file: its architecture, weights and tokenizer.
#pragma once
#include <attn/gguf.h>
#include <attn/model.h>

#include "model/gguf/matrix.h"

#include <map>
#include <string>
#include <string_view>

namespace attn::gguf {

/// Returns the architecture that the metadata and the names of the tensors describe. ValueError names a key with a
/// value that attn does not have, or an architecture that it does not read.
ModelConfig config_of(const GgufFile& file);

/// Throws a ValueError if the path is that of a GGUF file with an architecture that attn does not read. Call it first,
/// so that the error names the architecture and not, say, the tokenizer.
void check_architecture(const std::string& path);

/// The keys with the ids that end a text, in the order of ModelConfig::end_tokens: of a text, a turn, a message.
inline constexpr const char* end_keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                           "tokenizer.ggml.eom_token_id"};

/// The tables of factors of rotary frequencies, which belong to the architecture instead of the weights.
inline constexpr const char* factor_tables[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                                "rope_factors_long.weight"};
inline bool is_factor_table(std::string_view name) {
  return name == factor_tables[0] || name == factor_tables[1] || name == factor_tables[2];
}

/// Returns the scaling of the frequencies of `dim` rotated elements: of the keys behind `prefix`, of rope_freqs.weight
/// (Llama 3's, one factor for each frequency), or of the two tables of Phi-3; nullopt if there is none.
std::optional<nn::RotaryScaling> scaling_of(const GgufFile& file, const std::string& prefix, std::int64_t dim,
                                            double theta, std::int64_t context);

/// Returns the factors in f32 of a scaling of Llama 3.
Tensor factors_of(const nn::RotaryScaling& scaling, std::int64_t dim, double theta);

/// Throws a ValueError that lists the tensors that are missing, unexpected or of another shape.
void check_weights(const GgufFile& file, const ModelConfig& config);
void check_weights(const GgufFile& file, const std::vector<Stored>& all);

/// Returns the narrowest dtype that holds all of the file's weights: f16 or bf16 if all are, else f32.
Dtype dtype_of(const GgufFile& file);

/// Returns whether the matrices of a model of that dtype can stay as the file has them.
bool keeps_matrices(const GgufFile& file, const ModelConfig& config, Dtype dtype);
bool keeps_matrices(const GgufFile& file, const std::vector<Stored>& all, Dtype dtype);

/// Returns whether all matrices are numbers in f32.
bool is_f32(const GgufFile& file, const std::vector<Stored>& all);

/// A matrix that is to stay as the file has it, by the name of its parameter.
using Matrices = std::map<std::string, std::shared_ptr<Matrix>>;

/// Gives the matrices their tensors, and decodes the other weights into the parameters of a model of that config.
void load_weights(const GgufFile& file, const ModelConfig& config, const std::map<std::string, Tensor>& parameters,
                  const Matrices& matrices = {});
void load_weights(const GgufFile& file, const std::vector<Stored>& all, const std::map<std::string, Tensor>& parameters,
                  const Matrices& matrices);

}  // namespace attn::gguf
