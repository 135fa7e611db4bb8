// python/src/errors.cc: translates the library's exceptions to Python exceptions.
#include "errors.h"

#include <attn/cache.h>
#include <attn/ranks.h>

#include <cctype>
#include <new>
#include <utility>

namespace attn::python {

std::string in_python(std::string_view text) {
  static constexpr std::string_view classes[] = {"Mask",          "Bias",           "Score",   "ScoreExpression",
                                                 "ScoreTable",    "Weights",        "KvCache", "Tokenizer",
                                                 "LanguageModel", "TextGeneration", "Chat",    "ChatFormat",
                                                 "TextEncoder",   "Explanation",    "GgufFile"};
  static constexpr std::pair<std::string_view, std::string_view> values[] = {{" = true", "=True"},
                                                                             {" = false", "=False"}};
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::string result;
  bool quoted = false;
  while (!text.empty()) {
    quoted = quoted != (text.front() == '"');
    const char before = result.empty() ? ' ' : result.back();
    std::size_t taken = 0;
    for (const auto& [cpp, python] : values)
      if (!quoted && taken == 0 && text.starts_with(cpp) && in_word(before)) result += python, taken = cpp.size();
    for (const std::string_view name : classes)
      if (!quoted && taken == 0 && !in_word(before) && before != '/' && text.starts_with(name) &&
          text.substr(name.size()).starts_with("::"))
        result.append(name) += '.', taken = name.size() + 2;
    if (taken == 0) result += text.front(), taken = 1;
    text.remove_prefix(taken);
  }
  return result;
}

void add_errors(nb::module_& m) {
  static PyObject* cache_full = PyErr_NewExceptionWithDoc(
      "attn.CacheFull",
      "An append that a KvCache has no room for: release, evict or truncate something, then try again.",
      PyExc_RuntimeError, nullptr);
  m.attr("CacheFull") = nb::borrow(cache_full);
  static PyObject* rank_error = PyErr_NewExceptionWithDoc(
      "attn.mpi.RankError",
      "An error that every rank raises, with the same text, although it came up at one of them: the number `rank`.",
      PyExc_RuntimeError, nullptr);
  m.attr("RankError") = nb::borrow(rank_error);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    const auto raise = [](PyObject* type, const std::exception& error) {
      PyErr_SetString(type, in_python(error.what()).c_str());
    };
    try {
      std::rethrow_exception(thrown);
    } catch (const DtypeError& error) { raise(PyExc_TypeError, error); } catch (const KvCacheFull& error) {
      raise(cache_full, error);
    } catch (const RankError& error) {
      const nb::object raised = nb::borrow(rank_error)(in_python(error.what()));
      raised.attr("rank") = error.rank();
      PyErr_SetObject(rank_error, raised.ptr());
    } catch (const IoError& error) { raise(PyExc_OSError, error); } catch (const Error& error) {
      raise(PyExc_ValueError, error);
    } catch (const std::bad_alloc&) {
      PyErr_SetString(PyExc_MemoryError, "attn: there is no memory for so large a result");
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError, "attn: an argument has another type than the one that is needed");
    }
  });
}

}  // namespace attn::python
