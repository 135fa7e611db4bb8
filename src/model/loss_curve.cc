// src/model/loss_curve.cc: draws the losses of a training run as one SVG.
#include <attn/train.h>

#include "runtime/format.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

// All sizes are in pixels.
constexpr double kWidth = 760, kHeight = 420, kLeft = 70, kRight = 24, kTop = 60, kBottom = 56;
constexpr std::size_t kMostPoints = 1200;  // the most points of the line of batch losses: about two for each pixel

constexpr std::string_view kStyle =
    "<style>\n"
    ".attn-loss text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1c2430}\n"
    ".attn-loss .title{font-weight:700;font-size:15px}.attn-loss .faint{fill:#5a6675}\n"
    ".attn-loss .page{fill:#ffffff}.attn-loss .grid{stroke:#dfe4ea}.attn-loss .axis{stroke:#5a6675}\n"
    ".attn-loss path{fill:none;stroke-linejoin:round}.attn-loss .batch{stroke:#9db8d9;stroke-width:1}\n"
    ".attn-loss .train{stroke:#1f5fa8;stroke-width:2}.attn-loss .valid{stroke:#c2410c;stroke-width:2}.attn-loss "
    "circle{fill:#c2410c}\n"
    ".attn-loss text.train{fill:#1f5fa8;stroke:none}.attn-loss text.valid{fill:#c2410c;stroke:none}\n"
    "@media (prefers-color-scheme: dark){.attn-loss text{fill:#e6ebf2}.attn-loss .faint{fill:#9aa7b6}.attn-loss "
    ".page{fill:#12161c}\n"
    ".attn-loss .grid{stroke:#2a323c}.attn-loss .axis{stroke:#9aa7b6}.attn-loss .batch{stroke:#3b5573}.attn-loss "
    ".train{stroke:#7cb7ff}\n"
    ".attn-loss .valid{stroke:#ff9e64}.attn-loss circle{fill:#ff9e64}.attn-loss text.train{fill:#7cb7ff}.attn-loss "
    "text.valid{fill:#ff9e64}}\n"
    "</style>\n";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20) result += c;
  }
  return result;
}

struct Point {
  double x, y;
};

std::vector<Point> points_of(const Tensor& losses) {
  const std::vector<double> values = losses.to_vector();
  std::vector<Point> points;
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) points.push_back({values[i], values[i + 1]});
  return points;
}

/// Replaces groups of adjacent points by their averages, so that at most kMostPoints remain.
std::vector<Point> thinned(const std::vector<Point>& points) {
  const std::size_t group = (points.size() + kMostPoints - 1) / kMostPoints;
  if (group <= 1) return points;
  std::vector<Point> result;
  for (std::size_t begin = 0; begin < points.size(); begin += group) {
    const std::size_t end = std::min(begin + group, points.size());
    Point mean{0, 0};
    for (std::size_t i = begin; i < end; ++i) mean.x += points[i].x, mean.y += points[i].y;
    result.push_back({mean.x / static_cast<double>(end - begin), mean.y / static_cast<double>(end - begin)});
  }
  return result;
}

/// Averages each point with its neighbours: up to 1/50 of all points on either side.
std::vector<Point> smoothed(const std::vector<Point>& points) {
  const std::size_t reach = points.size() / 50;
  std::vector<double> sums{0};
  for (const Point& p : points) sums.push_back(sums.back() + p.y);
  std::vector<Point> result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t begin = i - std::min(i, reach), end = std::min(points.size(), i + reach + 1);
    result.push_back({points[i].x, (sums[end] - sums[begin]) / static_cast<double>(end - begin)});
  }
  return result;
}

/// Returns 1, 2 or 5 times a power of ten, such that about `wanted` steps of this size cover the range.
double nice_step(double range, double wanted) {
  const double rough = range / wanted, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

class Curve {
 public:
  Curve(std::vector<Point> batches, std::vector<Point> validations, double last_step)
      : batches_(std::move(batches)), validations_(std::move(validations)), last_step_(std::max(1.0, last_step)) {
    low_ = std::numeric_limits<double>::infinity();
    high_ = -low_;
    for (const auto* points : {&batches_, &validations_})
      for (const Point& p : *points) low_ = std::min(low_, p.y), high_ = std::max(high_, p.y);
    if (!(low_ <= high_)) low_ = 0, high_ = 1;
    tick_ = nice_step(std::max(high_ - low_, 1e-3), 6);
    low_ = std::floor(low_ / tick_) * tick_;
    high_ = std::max(low_ + tick_, std::ceil(high_ / tick_) * tick_);
  }

  std::string draw(const std::string& title) {
    grid();
    path("batch", thinned(batches_));
    path("train", thinned(smoothed(batches_)));
    path("valid", validations_);
    for (const Point& p : validations_)
      shapes_ += runtime::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n", x(p.x), y(p.y));
    legend(title);
    return runtime::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"attn-loss\" role=\"img\" aria-label=\"{0}\" width=\"{1}\" "
        "height=\"{2}\" viewBox=\"0 0 {1} {2}\">\n"
        "<title>{0}</title>\n{3}<rect class=\"page\" width=\"{1}\" height=\"{2}\"/>\n{4}</svg>\n",
        escaped(title), kWidth, kHeight, kStyle, shapes_);
  }

 private:
  double x(double step) const { return kLeft + step / last_step_ * (kWidth - kLeft - kRight); }
  double y(double loss) const { return kTop + (high_ - loss) / (high_ - low_) * (kHeight - kTop - kBottom); }

  void text(double at_x, double at_y, std::string_view style, std::string_view anchor, std::string_view words) {
    shapes_ += runtime::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", at_x,
                               at_y, style, anchor, escaped(words));
  }
  void line(std::string_view style, double x1, double y1, double x2, double y2) {
    shapes_ += runtime::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style,
                               x1, y1, x2, y2);
  }

  void grid() {
    const int digits = std::max(0, -static_cast<int>(std::floor(std::log10(tick_) + 1e-9)));
    for (int i = 0; low_ + i * tick_ <= high_ + tick_ / 2; ++i) {
      const double value = low_ + i * tick_;
      line("grid", kLeft, y(value), kWidth - kRight, y(value));
      text(kLeft - 8, y(value) + 4, "faint", "end", runtime::format("{:.{}f}", value, digits));
    }
    const double steps = std::max(1.0, nice_step(last_step_, 6));
    for (double step = 0; step <= last_step_ + steps / 100; step += steps) {
      line("axis", x(step), kHeight - kBottom, x(step), kHeight - kBottom + 5);
      text(x(step), kHeight - kBottom + 20, "faint", "middle", runtime::format("{:.0f}", step));
    }
    line("axis", kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom);
    text((kLeft + kWidth - kRight) / 2, kHeight - 12, "", "middle", "step");
    shapes_ += runtime::format(
        "<text transform=\"translate(18,{:.0f}) rotate(-90)\" text-anchor=\"middle\">loss, nats a token</text>\n",
        (kTop + kHeight - kBottom) / 2);
  }

  void path(std::string_view style, const std::vector<Point>& points) {
    std::string steps;
    for (const Point& p : points)
      steps += runtime::format("{}{:.1f} {:.1f}", steps.empty() ? "M" : "L", x(p.x), y(p.y));
    if (!steps.empty()) shapes_ += runtime::format("<path class=\"{}\" d=\"{}\"/>\n", style, steps);
  }

  void legend(const std::string& title) {
    text(kLeft, 22, "title", "start", title);
    text(kLeft, 44, "train", "start", "training (mean of its neighbours)");
    const auto best = std::min_element(validations_.begin(), validations_.end(),
                                       [](const Point& a, const Point& b) { return a.y < b.y; });
    if (best != validations_.end())
      text(kWidth - kRight, 44, "valid", "end",
           runtime::format("validation, best {:.4f} at step {:.0f}", best->y, best->x));
  }

  std::vector<Point> batches_, validations_;
  double last_step_, low_, high_, tick_;
  std::string shapes_;
};

}  // namespace

std::string loss_curve_svg(const Trainer& trainer, const std::string& title) {
  return Curve(points_of(trainer.losses()), points_of(trainer.validations()), static_cast<double>(trainer.step()))
      .draw(title);
}

}  // namespace attn
