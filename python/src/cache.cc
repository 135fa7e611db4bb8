// python/src/cache.cc: binds attn.KvCache and attention over a cache.
#include <attn/autograd.h>
#include <attn/cache.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "call.h"
#include "errors.h"
#include "gil.h"
#include "latent.h"
#include "scalars.h"
#include "terms.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <utility>

namespace attn::python {
namespace {

constexpr const char* cache_doc =
    R"doc(A KV cache: the keys and values of many sequences, for one layer of a model, in pages of one pool.

KvCache(key_heads, head_dim, pages, *, value_heads=0, value_dim=0, page_rows=16, dtype="float32", storage="same",
        scale_group=0, values_in_keys=False)

value_heads, value_dim: 0 means those of the keys. page_rows: the rows of a page, 16, 32, 64, 128 or 256; 0 gives each
sequence one block, which grows. storage: "same" keeps dtype, "int8" rounds to 8 bits, with one scale for each
scale_group neighbouring elements (0: for the whole row). values_in_keys: a value is the first value_dim elements of its
key, so only keys are stored and given to append (latent attention).

    >>> import attn, numpy as np
    >>> cache = attn.KvCache(key_heads=2, head_dim=8, pages=4)
    >>> sequence = cache.create()
    >>> cache.append(sequence, np.zeros((2, 3, 8), np.float32), np.zeros((2, 3, 8), np.float32))
    >>> cache.length(sequence), cache.free_pages
    (3, 3)

A key's position is the number of keys appended before it; it stays when older keys are evicted. attn.attention_cached
attends over the sequences of a cache. Raises ValueError for a sequence that is released or of another cache and for a
position out of range, attn.CacheFull for an append without room. A call that raises changes nothing. Threads may share
a cache.)doc";

/// Counts the forks that lie between the process that loaded attn and this one.
constinit std::atomic<unsigned> forks{0};
[[maybe_unused]] const int counted = pthread_atfork(nullptr, nullptr, [] { ++forks; });

/// A cache that Python threads may share: one thread at a time may change it, several may read it. The lock is taken
/// while the GIL is released.
struct PyCache {
  KvCache cache;
  mutable std::shared_mutex lock;
  // the value of `forks` when the lock was made; read and written with the GIL held
  mutable unsigned forks_known = forks;
  bool half_changed = false;  // only the thread that holds the lock writes it
  // of gathered rows: that of the rows that were appended last; changed and read like the cache, under the lock
  Framework framework = Framework::numpy;

  explicit PyCache(const KvCacheOptions& options) : cache(options) {}

  template <typename F>
  auto changing(F&& f) {
    free_in_child();
    const Unlocked unlocked;
    const std::unique_lock alone(lock);
    check_whole();
    struct Change {
      bool& now;
      ~Change() { now = false; }
    } change{half_changed};
    half_changed = true;
    return f(cache);
  }
  template <typename F>
  auto reading(F&& f) const {
    free_in_child();
    const Unlocked unlocked;
    const std::shared_lock shared(lock);
    check_whole();
    return f(cache);
  }

 private:
  /// Replaces the lock in a forked child. A thread that does not exist in the child may hold it and would never release
  /// it.
  void free_in_child() const {
    if (const unsigned now = forks; std::exchange(forks_known, now) != now)
      ::new (static_cast<void*>(&lock)) std::shared_mutex;
  }
  void check_whole() const {
    if (half_changed)
      throw ValueError("KvCache: a thread was changing it when this process was forked; here it is of no use");
  }
};

KvSequence sequence_of(nb::handle x, const char* function) {
  if (const KvSequence* given = as<KvSequence>(x)) return *given;
  throw type_error("{}: a {} is given; a sequence of the cache is needed, as create() gives it", function,
                   name_of_type(x));
}

std::vector<KvSequence> sequences_of(nb::handle x, const char* function) {
  if (!PyList_Check(x.ptr()) && !PyTuple_Check(x.ptr()))
    throw type_error("{}: sequences is a {}; a list of sequences is needed", function, name_of_type(x));
  std::vector<KvSequence> all;
  for (nb::handle each : x) all.push_back(sequence_of(each, function));
  return all;
}

Dtype dtype_of(nb::handle x, const char* function) {
  if (!PyUnicode_Check(x.ptr()))
    throw type_error("{}: dtype is {}; its name is needed, as \"float32\"", function,
                     x.is_none() ? "None" : "a " + name_of_type(x));
  return dtype_from_name(word(x, {function, "dtype"}));
}

void append(PyCache& self, nb::handle sequences, nb::handle k, nb::handle v) {
  constexpr const char* function = "KvCache.append";
  Reader read(function);
  const Tensor keys = read(k, "k"), values = read.optional(v, "v");
  const auto append_to = [&](const auto& whose) {
    self.changing([&](KvCache& cache) {
      cache.append(whose, keys, values);
      self.framework = read.framework();
    });
  };
  if (const KvSequence* given = as<KvSequence>(sequences)) append_to(KvSequence(*given));
  else append_to(sequences_of(sequences, function));
}

nb::tuple gather(const PyCache& self, nb::handle sequences, nb::handle dtype) {
  constexpr const char* function = "KvCache.gather";
  const std::vector<KvSequence> all = sequences_of(sequences, function);
  const Dtype to = dtype.is_none() ? self.cache.options().dtype : dtype_of(dtype, function);
  const auto [rows, framework] =
      self.reading([&](const KvCache& cache) { return std::pair(cache.gather(all, to), self.framework); });
  return nb::make_tuple(to_python(rows.k, framework), to_python(rows.v, framework));
}

nb::tuple attention_over(nb::handle q, const PyCache& self, nb::handle sequences, nb::handle options) {
  constexpr const char* function = "attention_cached";
  Call call(function, q, nb::handle(), nb::handle(), options);
  const std::vector<KvSequence> all = sequences_of(sequences, function);
  if (!call.out.is_none()) call.options.out = call.read.writable(call.out, "out");
  const AttentionResult result =
      self.reading([&](const KvCache& cache) { return attention_cached(call.q, cache, all, call.options); });
  return shown(result, call.out.is_none() ? nb::object() : nb::borrow(call.out), call);
}

nb::tuple latent_attention_over(nb::handle q_nope, nb::handle q_rope, nb::handle w_uk, nb::handle w_uv,
                                const PyCache& self, nb::handle sequences, nb::handle options, nb::handle form) {
  constexpr const char* function = "latent_attention_cached";
  LatentCall given(function, nb::make_tuple(q_nope, q_rope, nb::none(), nb::none(), w_uk, w_uv), options, form, false);
  const std::vector<KvSequence> all = sequences_of(sequences, function);
  const AttentionResult result = self.reading([&](const KvCache& cache) {
    return latent_attention_cached(given.operands, cache, all, given.call.options, given.form);
  });
  return shown(result, nb::object(), given.call);
}

void append_latent_rows(PyCache& self, nb::handle sequences, nb::handle latent, nb::handle k_rope) {
  constexpr const char* function = "append_latent";
  Reader read(function);
  const Tensor rows = read(latent, "latent"), rotary = read(k_rope, "k_rope");
  const std::vector<KvSequence> all = sequences_of(sequences, function);
  self.changing([&](KvCache& cache) {
    const NoGrad unrecorded;
    append_latent(cache, all, rows, rotary);
    self.framework = read.framework();
  });
}

void construct(PyCache* self, nb::handle key_heads, nb::handle head_dim, nb::handle pages, nb::handle value_heads,
               nb::handle value_dim, nb::handle page_rows, nb::handle dtype, nb::handle storage, nb::handle scale_group,
               nb::handle values_in_keys) {
  constexpr const char* function = "KvCache";
  KvCacheOptions options;
  options.key_heads = whole(key_heads, {function, "key_heads"});
  options.head_dim = whole(head_dim, {function, "head_dim"});
  options.pages = whole(pages, {function, "pages"});
  options.value_heads = whole(value_heads, {function, "value_heads"});
  options.value_dim = whole(value_dim, {function, "value_dim"});
  options.page_rows = whole(page_rows, {function, "page_rows"});
  options.dtype = dtype_of(dtype, function);
  options.storage = choice(storage, {function, "storage"}, {"same", "int8"}) == 0 ? KvStorage::same : KvStorage::int8;
  options.scale_group = whole(scale_group, {function, "scale_group"});
  options.values_in_keys = flag(values_in_keys, {function, "values_in_keys"});
  new (self) PyCache(options);
}

/// Returns a method that calls `method` with a sequence and a number, and changes the cache.
template <void (KvCache::*method)(KvSequence, std::int64_t)>
auto changed_by(const char* function, const char* name) {
  return [function, name](PyCache& self, nb::handle sequence, nb::handle x) {
    const KvSequence one = sequence_of(sequence, function);
    const std::int64_t value = whole(x, {function, name});
    self.changing([&](KvCache& cache) { (cache.*method)(one, value); });
  };
}

/// Returns a method that returns a number of a sequence.
template <std::int64_t (KvCache::*method)(KvSequence) const>
auto told(const char* function) {
  return [function](const PyCache& self, nb::handle sequence) {
    const KvSequence one = sequence_of(sequence, function);
    return self.reading([&](const KvCache& cache) { return (cache.*method)(one); });
  };
}

}  // namespace

void add_cache(nb::module_& m) {
  nb::class_<KvSequence> one(m, "KvSequence",
                             "A sequence of a KvCache. It notices when it was released or belongs to another cache.");
  one.def(
         "__eq__",
         [](const KvSequence& a, nb::handle b) {
           const KvSequence* other = as<KvSequence>(b);
           return other != nullptr && a == *other;
         },
         nb::arg("other").none())
      .def("__hash__",
           [](const KvSequence& a) {
             return (static_cast<std::uint64_t>(a.cache) * 1000003 + a.index) * 1000003 + a.generation;
           })
      .def("__repr__", [](const KvSequence& a) {
        return text("attn.KvSequence(cache={}, index={}, generation={})", a.cache, a.index, a.generation);
      });
  nb::class_<PyCache> c(m, "KvCache", cache_doc);
  c.def("__init__", construct, nb::arg("key_heads").none(), nb::arg("head_dim").none(), nb::arg("pages").none(),
        nb::kw_only(), nb::arg("value_heads").none() = 0, nb::arg("value_dim").none() = 0,
        nb::arg("page_rows").none() = 16, nb::arg("dtype").none() = "float32", nb::arg("storage").none() = "same",
        nb::arg("scale_group").none() = 0, nb::arg("values_in_keys").none() = false)
      .def(
          "create", [](PyCache& self) { return self.changing([](KvCache& cache) { return cache.create(); }); },
          "A new sequence without keys.")
      .def(
          "fork",
          [](PyCache& self, nb::handle x) {
            const KvSequence one = sequence_of(x, "KvCache.fork");
            return self.changing([&](KvCache& cache) { return cache.fork(one); });
          },
          nb::arg("sequence").none(), "A sequence with the same keys, at the cost of its page table.")
      .def(
          "release",
          [](PyCache& self, nb::handle x) {
            const KvSequence one = sequence_of(x, "KvCache.release");
            self.changing([&](KvCache& cache) { cache.release(one); });
          },
          nb::arg("sequence").none(), "Frees the pages that no other sequence shares.")
      .def("append", append, nb::arg("sequences").none(), nb::arg("k").none(), nb::arg("v").none() = nb::none(),
           "k [Hk, T, D], v [Hv, T, Dv]: T keys more; or [B, H, T, D] each for a list of B sequences, all or none. "
           "With values_in_keys k alone.")
      .def("truncate", changed_by<&KvCache::truncate>("KvCache.truncate", "length"), nb::arg("sequence").none(),
           nb::arg("length").none(), "Keeps the keys at positions below `length`.")
      .def("evict", changed_by<&KvCache::evict>("KvCache.evict", "position"), nb::arg("sequence").none(),
           nb::arg("position").none(), "Drops the keys at positions below `position`.")
      .def("length", told<&KvCache::length>("KvCache.length"), nb::arg("sequence").none(), "Position of the next key.")
      .def("first", told<&KvCache::first>("KvCache.first"), nb::arg("sequence").none(),
           "First position that was not evicted.")
      .def(
          "alive",
          [](const PyCache& self, nb::handle x) {
            const KvSequence one = sequence_of(x, "KvCache.alive");
            return self.reading([&](const KvCache& cache) { return cache.alive(one); });
          },
          nb::arg("sequence").none(), "Whether it still stands for a sequence.")
      .def_prop_ro(
          "free_pages",
          [](const PyCache& self) { return self.reading([](const KvCache& cache) { return cache.free_pages(); }); },
          "Pages that hold nothing.")
      .def("gather", gather, nb::arg("sequences").none(), nb::arg("dtype") = nb::none(),
           "The keys and values as arrays (a copy): [B, Hk, T, D] and [B, Hv, T, Dv], T the greatest length.")
      .def("__reduce__",
           [](const PyCache&) -> nb::object {
             throw type_error(
                 "KvCache: its pages are not copied or pickled; fork(sequence) is a copy of a sequence, "
                 "gather(sequences) gives keys and values as arrays");
           })
      .def("__repr__", [](const PyCache& self) {
        const KvCacheOptions& o = self.cache.options();
        return text(
            "attn.KvCache(key_heads={}, head_dim={}, pages={}, value_heads={}, value_dim={}, page_rows={}, "
            "dtype=\"{}\", storage=\"{}\", scale_group={}{})",
            o.key_heads, o.head_dim, o.pages, o.value_heads, o.value_dim, o.page_rows, torch_name_of(o.dtype),
            o.storage == KvStorage::same ? "same" : "int8", o.scale_group,
            o.values_in_keys ? ", values_in_keys=True" : "");
      });
  c.attr("__module__") = one.attr("__module__") = "attn";
  m.def("attention_cached", attention_over, nb::arg("q").none(), nb::arg("cache"), nb::arg("sequences").none(),
        nb::arg("options"));
  m.def("latent_attention_cached", latent_attention_over, nb::arg("q_nope").none(), nb::arg("q_rope").none(),
        nb::arg("w_uk").none(), nb::arg("w_uv").none(), nb::arg("cache"), nb::arg("sequences").none(),
        nb::arg("options"), nb::arg("form").none());
  m.def("append_latent", append_latent_rows, nb::arg("cache"), nb::arg("sequences").none(), nb::arg("latent").none(),
        nb::arg("k_rope").none());
}

}  // namespace attn::python
