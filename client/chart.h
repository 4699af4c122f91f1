#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tessera::client {

// A line chart as SVG, for an HTML page that has ChartStyle. Pure functions.

struct ChartPoint {
  double x = 0;
  double y = 0;  // not finite: the line has a gap here
};

struct ChartLine {
  std::string name = {};                // in the legend; empty: not in it
  std::vector<ChartPoint> points = {};  // ascending by x
  int color = 0;                        // 0 to kChartColors - 1
  bool dashed = false;
  bool dots = false;  // a dot at each point, with its value as tooltip
};
inline constexpr int kChartColors = 8;

// An event: a vertical line with a tooltip.
struct ChartEvent {
  double x = 0;
  std::string text;
};

struct Chart {
  std::string title = {};
  std::string x_name = {};
  std::vector<ChartLine> lines = {};
  std::vector<ChartEvent> events = {};
};

// An <svg> element; "" if no line has a point.
std::string ChartSvg(const Chart& chart);
// The content of <style>, for light and dark screens.
std::string ChartStyle();
// Escapes text for HTML and SVG.
std::string Escape(absl::string_view text);

// Round numbers (1, 2 or 5 times a power of ten apart) within [low, high], which is finite: from 2
// to about `wanted`, at most `wanted` + 1; or one number, if low and high differ only by rounding.
std::vector<double> RoundTicks(double low, double high, int wanted);
// "0.25", "50k", "1.5M": a tick's text, when ticks are `apart` from each other.
std::string TickText(double value, double apart);

}  // namespace tessera::client
