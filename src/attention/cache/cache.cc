// src/attention/cache/cache.cc: creates, forks, truncates, evicts and releases the sequences of a KV cache.
#include "runtime/format.h"

#include "attention/cache/cache_state.h"
#include "attention/cache/reserve.h"
#include "attention/cache/sinks.h"
#include "attention/cache/row_storage_formats.h"
#include "runtime/enum_value.h"

#include <algorithm>
#include <atomic>

namespace attn {
namespace {

// with page_rows = 0 a sequence has one block of rows; all blocks start with this many rows and double when one is full
constexpr std::int64_t first_block_rows = 64;

std::uint32_t next_id() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

void at_least_one(const char* name, std::int64_t value) {
  if (value < 1) throw ValueError(runtime::format("KvCache: {} is {}; it must be at least 1", name, value));
}

/// Checks the options of a cache whose values are parts of its keys.
void check_values_in_keys(const KvCacheOptions& options) {
  if (options.storage != KvStorage::same)
    throw ValueError("KvCache: storage is int8 with values_in_keys; such rows are stored in their dtype");
  if (options.value_heads != options.key_heads)
    throw ValueError(runtime::format("KvCache: value_heads is {} with values_in_keys; it must be {} as key_heads",
                                     options.value_heads, options.key_heads));
  if (options.value_dim > options.head_dim)
    throw ValueError(
        runtime::format("KvCache: value_dim is {} with values_in_keys; it must be at most {}, the head_dim",
                        options.value_dim, options.head_dim));
}

KvCacheOptions checked(KvCacheOptions options) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  at_least_one("key_heads", options.key_heads);
  at_least_one("head_dim", options.head_dim);
  if (options.value_heads == 0) options.value_heads = options.key_heads;
  if (options.value_dim == 0) options.value_dim = options.head_dim;
  at_least_one("value_heads", options.value_heads);
  at_least_one("value_dim", options.value_dim);
  if (options.pages < 1 || options.pages > most)
    throw ValueError(runtime::format("KvCache: pages is {}; it must be from 1 to {}", options.pages, most));
  const std::int64_t rows = options.page_rows;
  if (rows != 0 && (rows < 16 || rows > 256 || (rows & (rows - 1)) != 0))
    throw ValueError(runtime::format(
        "KvCache: page_rows is {}; it must be 16, 32, 64, 128 or 256, or 0 for one block a sequence", rows));
  if (!is_floating(options.dtype))
    throw DtypeError(runtime::format("KvCache: dtype is {}; it must be f32, f64, bf16 or f16", name_of(options.dtype)));
  runtime::check_enum(options.storage, KvStorage::int8, "KvCache: storage");
  if (options.scale_group < 0 || options.scale_group > most ||
      (options.scale_group > 0 && options.storage == KvStorage::same))
    throw ValueError(
        runtime::format("KvCache: scale_group is {}; it must be above 0 with int8 storage, or 0", options.scale_group));
  if (options.values_in_keys) check_values_in_keys(options);
  return options;
}

}  // namespace

KvCache::State::State(const KvCacheOptions& given)
    : options(given), id(next_id()), page_rows(given.page_rows == 0 ? first_block_rows : given.page_rows),
      pool(given.pages), k(layout(false), page_rows),
      v(given.values_in_keys ? PagedRows() : PagedRows(layout(true), page_rows)) {}

RowLayout KvCache::State::layout(bool values) const {
  RowLayout layout{.heads = values ? options.value_heads : options.key_heads,
                   .dim = values ? options.value_dim : options.head_dim,
                   .pages = options.pages,
                   .dtype = options.dtype,
                   .element = stored_element(options)};
  if (kernels::bytes_of(layout.element) == 1) {
    layout.group = options.scale_group == 0 ? layout.dim : options.scale_group;
    layout.interleave_width = static_cast<int>(values ? kernels::KvRows::line : kernels::KvRows::k_interleave_width);
  }
  return layout;
}

const KvCache::State::Sequence& KvCache::State::find(const char* function, KvSequence sequence,
                                                     const std::string& who) const {
  if (sequence.cache == 0) throw ValueError(runtime::format("{}: {} was not made by create or fork", function, who));
  if (sequence.cache != id || sequence.index >= sequences.size())
    throw ValueError(runtime::format("{}: {} belongs to another cache", function, who));
  const Sequence& found = sequences[sequence.index];
  if (!found.alive || found.generation != sequence.generation)
    throw ValueError(runtime::format("{}: {} was released", function, who));
  return found;
}

std::vector<const KvCache::State::Sequence*> KvCache::State::find_all(const char* function,
                                                                      const std::vector<KvSequence>& handles) const {
  std::vector<const Sequence*> found;
  found.reserve(handles.size());
  for (std::size_t n = 0; n < handles.size(); ++n)
    found.push_back(&find(function, handles[n], runtime::format("sequences[{}]", n)));
  return found;
}

KvCache::KvCache(const KvCacheOptions& options) : state_(std::make_unique<State>(checked(options))) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

const KvCache::State& KvCache::state() const {
  if (!state_) throw ValueError("KvCache: its contents were moved to another cache; it holds nothing");
  return *state_;
}
KvCache::State& KvCache::mutable_state() { return const_cast<State&>(state()); }

KvSequence KvCache::create() {
  State& s = mutable_state();
  if (s.unused.empty()) {
    if (s.unused.capacity() <= s.sequences.size()) s.unused.reserve(2 * s.sequences.size() + 1);
    s.sequences.emplace_back();
    s.unused.push_back(static_cast<std::uint32_t>(s.sequences.size() - 1));
  }
  const std::uint32_t index = s.unused.back();
  s.unused.pop_back();
  State::Sequence& made = s.sequences[index];
  made.alive = true;
  return {s.id, index, made.generation};
}

KvSequence KvCache::fork(KvSequence sequence) {
  State& s = mutable_state();
  std::vector<std::int32_t> table = s.find("fork", sequence).table;  // copied first, because this may throw
  const KvSequence made = create();
  const State::Sequence& from = s.sequences[sequence.index];
  State::Sequence& to = s.sequences[made.index];
  for (const std::int32_t page : table)
    if (page != State::evicted) s.pool.share(page);
  to.table = std::move(table);
  to.length = from.length;
  to.first = from.first;
  to.sinks = from.sinks;
  return made;
}

void KvCache::release(KvSequence sequence) {
  State& s = mutable_state();
  State::Sequence& gone = s.find("release", sequence);
  for (const std::int32_t page : gone.table)
    if (page != State::evicted) s.pool.drop(page);
  gone = {.table = {}, .length = 0, .first = 0, .sinks = 0, .generation = gone.generation + 1, .alive = false};
  s.unused.push_back(sequence.index);
}

void KvCache::truncate(KvSequence sequence, std::int64_t length) {
  State& s = mutable_state();
  State::Sequence& cut = s.find("truncate", sequence);
  if (length < 0 || length > cut.length)
    throw ValueError(runtime::format("truncate: length is {}; it must be from 0 to {}, the length of the sequence",
                                     length, cut.length));
  const auto kept = static_cast<std::size_t>((length + s.page_rows - 1) / s.page_rows);
  for (; cut.table.size() > kept; cut.table.pop_back())
    if (cut.table.back() != State::evicted) s.pool.drop(cut.table.back());
  cut.length = length;
  cut.first = std::min(cut.first, length);
  cut.sinks = std::min(cut.sinks, length);
}

void KvCache::State::evict(KvSequence sequence, std::int64_t position, std::int64_t sinks) {
  Sequence& cut = find("evict", sequence);
  if (position < 0 || position > cut.length)
    throw ValueError(runtime::format("evict: position is {}; it must be from 0 to {}, the length of the sequence",
                                     position, cut.length));
  // an earlier call may have kept fewer sinks and masked keys after them
  const std::int64_t kept = std::min(sinks, cut.first > cut.sinks ? cut.sinks : position);
  for (std::int64_t page = position / page_rows; --page >= (kept + page_rows - 1) / page_rows;) {
    std::int32_t& entry = cut.table[static_cast<std::size_t>(page)];
    if (entry != evicted) pool.drop(entry);
    entry = evicted;
  }
  cut.first = std::max(cut.first, position);
  cut.sinks = kept;
}

void KvCache::evict(KvSequence sequence, std::int64_t position) { mutable_state().evict(sequence, position, 0); }

void evict_behind_sinks(KvCache& cache, KvSequence sequence, std::int64_t position, std::int64_t sinks) {
  const_cast<KvCache::State&>(cache.state()).evict(sequence, position, sinks);
}

void reserve_rows(KvCache& cache, std::int64_t rows) {
  KvCache::State& state = const_cast<KvCache::State&>(cache.state());
  if (const std::int64_t block = state.block_rows(rows); block > state.page_rows) state.grow(block);
}

std::int64_t KvCache::length(KvSequence sequence) const { return state().find("length", sequence).length; }
std::int64_t KvCache::first(KvSequence sequence) const { return state().find("first", sequence).first; }
bool KvCache::alive(KvSequence sequence) const noexcept {
  if (!state_) return false;
  const State& s = *state_;
  return sequence.cache == s.id && sequence.index < s.sequences.size() && s.sequences[sequence.index].alive &&
         s.sequences[sequence.index].generation == sequence.generation;
}
std::int64_t KvCache::free_pages() const noexcept { return state_ ? state_->pool.free() : 0; }
const KvCacheOptions& KvCache::options() const { return state().options; }

KvCache::Rows KvCache::gather(const std::vector<KvSequence>& sequences) const {
  return gather(sequences, options().dtype);
}
KvCache::Rows KvCache::gather(const std::vector<KvSequence>& sequences, Dtype dtype) const {
  if (!is_floating(dtype))
    throw DtypeError(runtime::format("gather: dtype is {}; it must be f32, f64, bf16 or f16", name_of(dtype)));
  return state().gather(state().find_all("gather", sequences), dtype);
}

}  // namespace attn
