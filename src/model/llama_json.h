// src/model/llama_json.h: reads and writes config.json of Llama and of families with its names, as transformers has it.
#pragma once
#include "model/family.h"
#include "model/json_fields.h"

namespace attn {

ModelConfig read_llama(const JsonFields& fields, Family family);
nlohmann::ordered_json llama_json(const ModelConfig& config, Family family);

}  // namespace attn
