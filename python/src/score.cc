// python/src/score.cc: binds attn.Score, which says how a score is computed from a query and a key.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "scalars.h"
#include "terms.h"

namespace attn::python {
namespace {

constexpr const char* score_doc = R"doc(How the score of a pair, one number, is computed from its query and its key.

    >>> import attn
    >>> attn.Score.dot()
    attn.Score.dot()

A function of the finished score, such as a decay with the distance, is `score_mod` of attn.attention.)doc";

PyScore general(nb::handle w) { return {Score::general(keep(w, {"Score.general", "w"})), {nb::borrow(w)}}; }

PyScore additive(nb::handle w_q, nb::handle w_k, nb::handle w) {
  constexpr const char* function = "Score.additive";
  return {Score::additive(keep(w_q, {function, "w_q"}), keep(w_k, {function, "w_k"}), keep(w, {function, "w"})),
          {nb::borrow(w_q), nb::borrow(w_k), nb::borrow(w)}};
}

PyScore with_arrays(const PyScore& self, const std::vector<nb::object>& arrays) {
  if (arrays.size() != self.arrays.size())
    throw ValueError(
        text("Score.with_arrays: {} arrays are given; the score has {}", arrays.size(), self.arrays.size()));
  const auto array = [&](std::size_t n) { return arrays[n].is_none() ? self.arrays[n] : arrays[n]; };
  if (arrays.size() == 1) return general(array(0));
  if (arrays.size() == 3) return additive(array(0), array(1), array(2));
  return self;
}

std::string shown(const PyScore& self) {
  const auto shape = [](const Tensor& x) { return text("{} {}", torch_name_of(x.dtype()), to_string(x.sizes())); };
  const Score& s = self.score;
  switch (s.kind) {
    case Score::Kind::scaled_dot: return "attn.Score.scaled_dot()";
    case Score::Kind::dot: return "attn.Score.dot()";
    case Score::Kind::general: return text("attn.Score.general({})", shape(s.w));
    case Score::Kind::additive: return text("attn.Score.additive({}, {}, {})", shape(s.w_q), shape(s.w_k), shape(s.w));
  }
  return {};
}

nb::tuple reduced(const PyScore& self) {
  const std::vector<nb::object>& arrays = self.arrays;
  switch (self.score.kind) {
    case Score::Kind::dot: return made_again<PyScore>("dot");
    case Score::Kind::general: return made_again<PyScore>("general", arrays[0]);
    case Score::Kind::additive: return made_again<PyScore>("additive", arrays[0], arrays[1], arrays[2]);
    default: return made_again<PyScore>("scaled_dot");
  }
}

}  // namespace

void add_score(nb::module_& m) {
  nb::class_<PyScore> c(m, "Score", score_doc);
  c.def(nb::init<>())
      .def_static(
          "scaled_dot", [] { return PyScore{Score::scaled_dot(), {}}; },
          "(q . k) / sqrt(D), or * scale. Source: Vaswani 2017 (1706.03762).")
      .def_static(
          "dot", [] { return PyScore{Score::dot(), {}}; }, "q . k. Source: Luong 2015 (1508.04025).")
      .def_static("general", general, nb::arg("w").none(),
                  "q^T W k with w [D, Dk], or [Hq, D, Dk]. Source: Luong 2015.")
      .def_static("additive", additive, nb::arg("w_q").none(), nb::arg("w_k").none(), nb::arg("w").none(),
                  "w . tanh(W_q q + W_k k): w_q [A, D], w_k [A, Dk], w [A]. Source: Bahdanau 2014 (1409.0473).")
      .def("__repr__", shown)
      .def("__reduce__", reduced)
      .def_prop_ro(
          "arrays", [](const PyScore& self) { return self.arrays; }, "w, or w_q, w_k, w.")
      .def("with_arrays", with_arrays, nb::arg("arrays"), "The same over other arrays; None: as they are.");
  c.attr("__module__") = "attn";
}

}  // namespace attn::python
