// python/src/verify.cc: binds attn.verify, which compares the kernels of this machine with the reference code.
#include <attn/runtime.h>
#include <attn/verify.h>

#include <nanobind/stl/string.h>

#include "errors.h"
#include "gil.h"
#include "scalars.h"
#include "terms.h"

namespace attn::python {
namespace {

std::string shown(const VerifyReport& report) {
  std::string all;
  for (const VerifyRow& row : report.rows)
    all += text("{:<24} {:>4} cases   {}\n", row.name, row.cases,
                row.different == 0 ? "same" : text("{} DIFFERENT", row.different));
  if (!report.passed()) all += text("{}; again: attn.verify(\"{}\")\n", report.difference, report.line);
  return all + text("numerics {}, digest {}", numerics_version, report.digest);
}

VerifyReport verified(nb::handle line, nb::handle quick) {
  VerifyOptions options{.quick = flag(quick, {"verify", "quick"}),
                        .line = line.is_none() ? "" : word(line, {"verify", "line"}),
                        .progress = {}};
  const Unlocked unlocked;
  return verify(options);
}

}  // namespace

void add_verify(nb::module_& m) {
  nb::class_<VerifyReport> c(m, "VerifyReport",
                             "What attn.verify found: passed, cases, digest, rows of (name, cases, different, digest), "
                             "the first difference and its line.");
  c.attr("__module__") = "attn";
  c.def_prop_ro("passed", &VerifyReport::passed)
      .def_ro("cases", &VerifyReport::cases)
      .def_ro("digest", &VerifyReport::digest)
      .def_ro("difference", &VerifyReport::difference)
      .def_ro("line", &VerifyReport::line)
      .def_prop_ro("rows",
                   [](const VerifyReport& self) {
                     nb::list rows;
                     for (const VerifyRow& row : self.rows)
                       rows.append(nb::make_tuple(row.name, row.cases, row.different, row.digest));
                     return rows;
                   })
      .def("__bool__", &VerifyReport::passed)
      .def("__str__", shown)
      .def("__repr__", shown);
  m.def("verify", verified, nb::arg("line") = nb::none(), nb::arg("quick").none() = false,
        "Every kernel of this machine against the specification, bit by bit: the table of cases, the small one, or one "
        "`line` of it. Not beside other\n"
        "calls: it changes the number of threads while it runs.");
}

}  // namespace attn::python
