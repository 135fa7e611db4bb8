// src/kernels/ref/rank_totals.cc: merges the sums of rows over splits of keys in plain loops, as the forward pass does
// (kernels/ref/attention.cc).
#include "kernels/rank_totals.h"
#include "kernels/ref/math.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

template <typename T>
void merge_rows(const RowTotals& total, const RowTotals& part, std::int64_t rows, std::int64_t columns) {
  T *const maxima = static_cast<T*>(total.max), *const sums = static_cast<T*>(total.sum);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T part_m = static_cast<const T*>(part.max)[i], part_l = static_cast<const T*>(part.sum)[i];
    if (part_l == 0) continue;  // the row sees no key of the split: the largest score alone adds 1
    const bool any = sums[i] != 0;
    const T m = part_m > maxima[i] ? part_m : maxima[i];
    const T a = any ? weight_of(maxima[i], m) : T(0), b = weight_of(part_m, m);
    sums[i] = canonical(fma(sums[i], a, part_l * b));
    T* const o = static_cast<T*>(total.output) + i * columns;
    const T* const part_o = static_cast<const T*>(part.output) + i * columns;
    for (std::int64_t d = 0; d < columns; ++d) o[d] = canonical(fma(o[d], a, part_o[d] * b));
    maxima[i] = canonical(m);
  }
}

void merge(Element element, const RowTotals& total, const RowTotals& part, std::int64_t rows, std::int64_t columns) {
  (element == Element::f64 ? merge_rows<double> : merge_rows<float>)(total, part, rows, columns);
}

}  // namespace

extern const MergeTotals merge_totals;
const MergeTotals merge_totals = merge;

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
