// src/model/train_settings.h: what a training was begun with, as JSON.
#pragma once
#include <attn/train.h>

#include <nlohmann/json.hpp>

namespace attn {

/// Every field of the options and of their model, side by side.
nlohmann::json settings_of(const TrainOptions& options);
/// What `settings_of` made, now or before there were the later fields. Throws for anything else.
TrainOptions options_of(const nlohmann::json& settings);

}  // namespace attn
