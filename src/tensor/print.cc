// src/tensor/print.cc: formats tensors as text, character for character as torch prints them.
#include <attn/ops.h>

#include "tensor/record.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <ostream>

namespace attn {
namespace {

std::string decimals(double value, int precision) {
  if (std::isnan(value)) return "nan";  // never "-nan"
  return runtime::format("{:.{}f}", value, precision);
}

std::string scientific(double value, int precision) {
  if (std::isnan(value)) return "nan";
  return runtime::format("{:.{}e}", value, precision);
}

/// The format for all elements of a tensor: integers, decimals or powers of ten, and the width of the widest element.
class Format {
 public:
  Format(const Tensor& shown, const PrintOptions& options) : dtype_(shown.dtype()), precision_(options.precision) {
    if (!is_floating(dtype_)) {
      for (const std::int64_t value : shown.to_int_vector()) widen_to(of_int(value));
      return;
    }
    double least = 0, most = 0;
    std::vector<double> values = shown.to_vector();
    std::erase_if(values, [](double value) { return !std::isfinite(value) || value == 0; });
    for (const double value : values) {
      const double size = std::fabs(value);
      least = least == 0 ? size : std::min(least, size);
      most = std::max(most, size);
      whole_ = whole_ && value == std::ceil(value);
    }
    if (values.empty()) return;
    scientific_ = most / least > 1000 || most > 1e8 || least < 1e-4;
    for (const double value : values) widen_to(of_float(value));
  }

  std::size_t width() const { return width_; }
  std::string operator()(double value) const { return aligned(of_float(value)); }
  std::string operator()(std::int64_t value) const { return aligned(of_int(value)); }

 private:
  std::string of_int(std::int64_t value) const {
    return dtype_ == Dtype::boolean ? (value ? "True" : "False") : std::to_string(value);
  }
  std::string of_float(double value) const {
    if (scientific_) return scientific(value, precision_);
    if (whole_) return decimals(value, 0) + (std::isfinite(value) ? "." : "");
    return decimals(value, precision_);
  }
  std::string aligned(const std::string& text) const {
    return std::string(width_ - std::min(width_, text.size()), ' ') + text;
  }
  void widen_to(const std::string& text) { width_ = std::max(width_, text.size()); }

  Dtype dtype_;
  int precision_;
  bool whole_ = true;
  bool scientific_ = false;
  std::size_t width_ = 1;
};

/// Throws ValueError for an option that makes no sense. Numbers that mean "no limit" are reduced to values whose sums
/// do not overflow.
PrintOptions checked(PrintOptions options) {
  constexpr int most_digits = 1000, unlimited = 1 << 29;
  const std::pair<const char*, std::int64_t> fields[] = {{"precision", options.precision},
                                                         {"threshold", options.threshold},
                                                         {"edge_items", options.edge_items},
                                                         {"line_width", options.line_width}};
  for (const auto& [name, value] : fields)
    if (value < 0) throw ValueError(runtime::format("to_string: {} is {}; it must be at least 0", name, value));
  if (options.precision > most_digits)
    throw ValueError(
        runtime::format("to_string: precision is {}; it must be at most {}", options.precision, most_digits));
  options.edge_items = std::min(options.edge_items, unlimited);
  options.line_width = std::min(options.line_width, unlimited);
  return options;
}

/// Returns the elements that a summarised tensor shows.
Tensor edges_of(Tensor x, std::int64_t edge) {
  for (int d = 0; d < x.dim(); ++d)
    if (x.size(d) > 2 * edge) x = cat({x.narrow(d, 0, edge), x.narrow(d, x.size(d) - edge, edge)}, d);
  return x;
}

class Printer {
 public:
  Printer(const Tensor& x, const PrintOptions& options)
      : options_(options), summarise_(x.numel() > options.threshold),
        format_(summarise_ ? edges_of(x, options.edge_items) : x, options) {}

  std::string text(const Tensor& x, int indent) const {
    if (x.dim() == 0) return elements(x.unsqueeze(0)).front();
    return x.dim() == 1 ? row(x, indent) : rows(x, indent);
  }

 private:
  bool is_cut(const Tensor& x) const { return summarise_ && x.size(0) > 2 * options_.edge_items; }

  std::vector<std::string> elements(const Tensor& x) const {
    std::vector<std::string> texts;
    if (is_floating(x.dtype()))
      for (const double value : x.to_vector()) texts.push_back(format_(value));
    else
      for (const std::int64_t value : x.to_int_vector()) texts.push_back(format_(value));
    return texts;
  }

  /// Formats a tensor of rank 1, with line breaks so that each line has as many elements as the width allows.
  std::string row(const Tensor& x, int indent) const {
    const std::int64_t edge = options_.edge_items;
    std::vector<std::string> texts = elements(is_cut(x) ? edges_of(x, edge) : x);
    if (is_cut(x)) texts.insert(texts.begin() + edge, edge ? " ..." : "...");
    const auto per_line =
        static_cast<std::size_t>(std::max(1, (options_.line_width - indent) / (static_cast<int>(format_.width()) + 2)));
    std::string text = "[";
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (i) text += i % per_line ? ", " : runtime::format(",\n{:>{}}", "", indent + 1);
      text += texts[i];
    }
    return text + "]";
  }

  /// Formats a tensor of rank 2 or more, with rank - 1 line breaks between its slices along dim 0.
  std::string rows(const Tensor& x, int indent) const {
    const std::int64_t edge = options_.edge_items, size = x.size(0);
    const std::string between = runtime::format(",{:\n>{}}{:>{}}", "", x.dim() - 1, "", indent + 1);
    std::string text = "[";
    for (std::int64_t i = 0; i < size; ++i) {
      if (i) text += between;
      if (is_cut(x) && i == edge) {
        text += "...";
        i = size - edge - 1;
      } else {
        text += this->text(x.select(0, i), indent + 1);
      }
    }
    return text + "]";
  }

  PrintOptions options_;
  bool summarise_;
  Format format_;
};

/// Returns those of `dtype=`, `size=` and `grad_fn=` that the text does not already imply.
std::vector<std::string> suffixes_of(const Tensor& x, const PrintOptions& options) {
  std::vector<std::string> suffixes;
  const bool empty = x.numel() == 0;
  if (empty ? x.dim() != 1 : options.edge_items == 0) {
    const std::string sizes = attn::to_string(x.sizes());
    suffixes.push_back("size=(" + sizes.substr(1, sizes.size() - 2) + (x.dim() == 1 ? ",)" : ")"));
  }
  const bool is_default =
      x.dtype() == Dtype::f32 || (!empty && (x.dtype() == Dtype::i64 || x.dtype() == Dtype::boolean));
  if (!is_default) suffixes.push_back("dtype=torch." + std::string(torch_name_of(x.dtype())));
  if (!x.is_leaf()) suffixes.push_back("grad_fn=<" + x.grad_fn() + ">");
  else if (x.requires_grad()) suffixes.push_back("requires_grad=True");
  return suffixes;
}

}  // namespace

std::string to_string(const Tensor& tensor, const PrintOptions& given) {
  constexpr int indent = 7;  // the width of "tensor("
  const PrintOptions options = checked(given);
  if (!tensor.defined()) return "tensor(undefined)";
  const Tensor x = tensor.detach();
  std::string text = "tensor(" + (x.numel() ? Printer(x, options).text(x, indent) : "[]");
  // torch counts two columns more than the last line has.
  std::size_t last_line = text.size() - (text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1) + 2;
  for (const std::string& suffix : suffixes_of(tensor, options)) {
    if (last_line + suffix.size() + 2 > static_cast<std::size_t>(options.line_width)) {
      text += runtime::format(",\n{:>{}}{}", "", indent, suffix);
      last_line = indent + suffix.size();
    } else {
      text += ", " + suffix;
      last_line += suffix.size() + 2;
    }
  }
  return text + ")";
}

std::string Tensor::to_string() const { return attn::to_string(*this, PrintOptions{}); }

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.to_string(); }

}  // namespace attn
