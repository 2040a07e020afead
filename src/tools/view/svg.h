// Pictures made in C++: charts with axes, the map of a machine's links, the timeline. Colours and type are classes of
// page.css, so one picture works in light and dark mode. Each picture has a title that describes it in words.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tools/view/html.h"

namespace pyflame::tools::view {

struct Axis {
  std::string title;
  bool logarithmic = false;
  // NaN: from the data. With `logarithmic`, values that are not positive are left out.
  double low = std::numeric_limits<double>::quiet_NaN(), high = std::numeric_limits<double>::quiet_NaN();
};

struct Series {
  std::string name;  // written at its end
  std::vector<std::pair<double, double>> points;
  std::string look;   // class: "c3", "roof", …
  bool step = false;  // keeps each value up to the next point
};

struct Mark {
  double x = 0, y = 0;
  std::string label;   // beside it
  std::string inside;  // in the middle, at most two characters; makes the mark larger
  std::string title;   // shown when pointed at
  std::string look;
};

struct Chart {
  std::string title;  // for users who do not see the picture
  Axis x, y;
  std::vector<Series> series;
  std::vector<Mark> marks;
  int width = 520, height = 280;
};
// Empty if there is nothing finite to draw.
Html chart(const Chart& c);

// Vertical bars, one per category: occupancy per block size.
struct Upright {
  std::string label, value;
  double height = 0;
  bool chosen = false;
};
Html uprights(const std::string& title, const std::string& x_title, const std::string& y_title, double top,
              const std::vector<Upright>& bars, int width = 520, int height = 280);

// GPUs on a ring, inside the NUMA nodes to which they are connected.
struct Topology {
  struct Gpu {
    std::string name, detail, link, title;  // "GPU 0", "gfx942", "PCIe 5 ×16"
    int numa = -1;
    bool slow = false;  // its PCIe link is slower than it could be
  };
  struct Link {
    size_t from, to;
    double gb_s = 0;  // 0: unknown
    bool direct = true;
    std::string title;
  };
  std::vector<Gpu> gpus;
  std::vector<Link> links;
  std::string title;
};
Html topology(const Topology& t);

struct Track {
  struct Event {
    double start, length;
    int color;
  };
  std::string name;
  std::vector<Event> events;
};
struct Timeline {
  std::string title;
  std::vector<Track> tracks;
  std::vector<std::pair<double, std::string>> steps;  // marks, in microseconds
};
// The whole span. If several events share a column, its height is the fraction of time that is busy.
Html timeline(const Timeline& t);

// Round numbers that divide low..high into about `count` parts.
std::vector<double> ticks(double low, double high, int count);

}  // namespace pyflame::tools::view
