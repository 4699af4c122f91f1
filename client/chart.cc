#include "client/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace tessera::client {
namespace {

constexpr double kWidth = 640, kHeight = 320;
constexpr double kLeft = 58, kRight = 14, kTop = 44, kBottom = 40;

// Numbers that differ by less are one number, rounded differently; ticks between would look alike.
bool IsFlat(double low, double high) {
  return !(high - low > 1e-12 * std::max(std::abs(low), std::abs(high)));
}

struct Range {
  double low = INFINITY;
  double high = -INFINITY;

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // The range with some room above and below, so that it is not empty.
  Range Padded(double part) const {
    const double pad =
        IsFlat(low, high) ? std::max(std::abs(low) * 0.05, 1e-6) : (high - low) * part;
    return {low - pad, high + pad};
  }
  double Part(double value) const { return (value - low) / (high - low); }
};

// Maps values to places in the picture.
struct Frame {
  Range x, y;

  double X(double value) const { return kLeft + x.Part(value) * (kWidth - kLeft - kRight); }
  double Y(double value) const {
    return kHeight - kBottom - y.Part(value) * (kHeight - kTop - kBottom);
  }
};

void AppendText(std::string* svg, double x, double y, absl::string_view style,
                absl::string_view text) {
  absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y, style,
                        Escape(text));
}

void AppendAxes(const Chart& chart, const Frame& frame, std::string* svg) {
  const auto apart = [](const std::vector<double>& ticks) {
    return ticks.size() < 2 ? std::abs(ticks[0]) : ticks[1] - ticks[0];
  };
  const std::vector<double> rows = RoundTicks(frame.y.low, frame.y.high, 6);
  for (const double value : rows) {
    absl::StrAppendFormat(svg, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", kLeft,
                          frame.Y(value), kWidth - kRight);
    AppendText(svg, kLeft - 6, frame.Y(value) + 4, "left", TickText(value, apart(rows)));
  }
  const std::vector<double> columns = RoundTicks(frame.x.low, frame.x.high, 7);
  for (const double value : columns) {
    absl::StrAppendFormat(svg, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", frame.X(value),
                          kTop, kHeight - kBottom);
    AppendText(svg, frame.X(value), kHeight - kBottom + 16, "below",
               TickText(value, apart(columns)));
  }
  AppendText(svg, (kLeft + kWidth - kRight) / 2, kHeight - 6, "below", chart.x_name);
  AppendText(svg, kLeft, 18, "title", chart.title);
}

void AppendLine(const ChartLine& line, const Frame& frame, std::string* svg) {
  std::string path;
  bool pen_down = false;
  for (const ChartPoint& point : line.points) {
    const bool there = std::isfinite(point.x) && std::isfinite(point.y);
    if (there) {
      absl::StrAppendFormat(&path, "%s%.1f %.1f", pen_down ? "L" : "M", frame.X(point.x),
                            frame.Y(point.y));
    }
    pen_down = there;
  }
  absl::StrAppendFormat(svg, "<path class=\"line c%d%s\" d=\"%s\"/>\n", line.color,
                        line.dashed ? " dashed" : "", path);
  if (!line.dots) return;
  for (const ChartPoint& point : line.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    absl::StrAppendFormat(
        svg, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%s</title></circle>\n",
        line.color, frame.X(point.x), frame.Y(point.y),
        Escape(absl::StrFormat("%s %.6g at %.6g", line.name, point.y, point.x)));
  }
}

void AppendLegend(const Chart& chart, std::string* svg) {
  if (chart.lines.size() < 2) return;  // the title is enough
  double x = kLeft;
  for (const ChartLine& line : chart.lines) {
    if (line.name.empty()) continue;
    // Letters are about 6.5 wide; the table beside has the names that do not fit.
    const double width = 30 + 6.5 * static_cast<double>(line.name.size());
    if (x + width > kWidth) return;
    absl::StrAppendFormat(svg, "<path class=\"line c%d%s\" d=\"M%.1f 32h18\"/>\n", line.color,
                          line.dashed ? " dashed" : "", x);
    AppendText(svg, x + 23, 36, "legend", line.name);
    x += width + 8;
  }
}

}  // namespace

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::vector<double> RoundTicks(double low, double high, int wanted) {
  if (IsFlat(low, high)) return {low};
  wanted = std::max(wanted, 1);
  const double raw = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= raw * 0.999) {
      step = times * power;
      break;
    }
  }
  std::vector<double> ticks;
  // Multiples of the step, since sums of it drift. The step is about `raw` or more, so at most one
  // tick more than wanted fits.
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= wanted && (first + i) * step <= high + step * 1e-9; ++i) {
    ticks.push_back((first + i) * step + 0.0);
  }
  if (ticks.empty()) ticks.push_back(low);
  return ticks;
}

std::string TickText(double value, double apart) {
  const char* unit = "";
  for (const auto& [size, name] : {std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (std::abs(value) >= size && apart >= size / 100) {
      value /= size;
      apart /= size;
      unit = name;
      break;
    }
  }
  const int digits =
      apart > 0 ? std::clamp(static_cast<int>(std::ceil(-std::log10(apart) - 1e-9)), 0, 9) : 3;
  std::string text = absl::StrFormat("%.*f", digits, value);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : absl::StrCat(text, unit);
}

std::string ChartSvg(const Chart& chart) {
  Range x, y;
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& point : line.points) {
      if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
      x.Add(point.x);
      y.Add(point.y);
    }
  }
  if (x.low > x.high) return "";
  // Charts side by side begin at the same x.
  if (x.low > 0 && x.low < x.high / 2) x.low = 0;
  const Frame frame = {.x = x.Padded(0), .y = y.Padded(0.05)};
  std::string svg = absl::StrFormat("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\">\n",
                                    kWidth, kHeight, Escape(chart.title));
  AppendAxes(chart, frame, &svg);
  for (const ChartEvent& event : chart.events) {
    if (!(event.x >= frame.x.low && event.x <= frame.x.high)) continue;
    absl::StrAppendFormat(&svg,
                          "<path class=\"event\" d=\"M%.1f %.1fV%.1f\"><title>%s</title></path>\n",
                          frame.X(event.x), kTop, kHeight - kBottom, Escape(event.text));
  }
  for (const ChartLine& line : chart.lines) AppendLine(line, frame, &svg);
  AppendLegend(chart, &svg);
  svg += "</svg>\n";
  return svg;
}

std::string ChartStyle() {
  std::string style = R"(
:root { --back: #fff; --text: #222; --soft: #666; --grid: #e3e3e3; --event: #bbb; }
@media (prefers-color-scheme: dark) {
  :root { --back: #16181c; --text: #e6e6e6; --soft: #a0a0a0; --grid: #2c3036; --event: #565b63; }
}
svg { width: 100%; font: 11px system-ui, sans-serif; fill: var(--soft); }
svg .title { font-size: 14px; font-weight: 600; fill: var(--text); }
svg .left { text-anchor: end; }
svg .below { text-anchor: middle; }
svg .grid { stroke: var(--grid); }
svg .event { stroke: var(--event); stroke-width: 2; stroke-dasharray: 2 3; }
svg .line { fill: none; stroke: var(--color); stroke-width: 1.8; stroke-linejoin: round; }
svg circle { fill: var(--color); }
svg .dashed { stroke-width: 1.2; stroke-dasharray: 5 3; }
)";
  // Colours that most colour-blind people can tell apart (Okabe and Ito, 2008), without black.
  const char* const colors[kChartColors] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                            "#e69f00", "#56b4e9", "#8a6d3b", "#7f7f7f"};
  for (int c = 0; c < kChartColors; ++c) {
    absl::StrAppendFormat(&style, ".c%d { --color: %s; }\n", c, colors[c]);
  }
  return style;
}

}  // namespace tessera::client
