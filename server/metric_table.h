// The one table of Prometheus families. A row is all that is said of a family: its series, HELP, the scrape, its name
// with vLLM and docs/metrics.md follow from it. To add a metric, add a row to metric_table.cc.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/metrics.h"
#include "server/process_stats.h"

namespace sluice {

enum class MetricKind { kCounter, kGauge, kHistogram };

// What an event does to a family.
struct Observation {
  double value = 1;   // observed by a histogram, added to a counter
  int count = 1;      // so many times; 0: the event does not concern the family
  size_t series = 0;  // which of MetricRow::series
};

// The values of a row's labels, in their order.
using LabelValues = std::vector<std::string>;

struct Sample {
  LabelValues labels;
  double value = 0;
};

// Where a family's values come from. Feed: events, from the moment of a scrape back to the start. Read, ReadSeries:
// what stands in the snapshot of a scrape, as one series or as several. Those of a GrpcReply, a ServerSnapshot and
// ProcessStats are the process's, all others a model's.
template <class Event>
using Feed = Observation (*)(const Event& event);
template <class Snapshot>
using Read = double (*)(const Snapshot& snapshot);
template <class Snapshot>
using ReadSeries = std::vector<Sample> (*)(const Snapshot& snapshot);

using MetricSource =
    std::variant<Feed<EndedCall>, Feed<FinishedCall>, Feed<FirstToken>, Feed<LaterTokens>, Feed<StepStats>,
                 Feed<SlowWrite>, Feed<GrpcReply>, Read<ModelSnapshot>, ReadSeries<ModelSnapshot>, Read<ServerSnapshot>,
                 ReadSeries<ServerSnapshot>, Read<ProcessStats>>;

struct MetricRow {
  std::string name;  // part of the interface: never renamed
  MetricKind kind = MetricKind::kGauge;
  std::string help;  // no line breaks, no backslashes: the text format has no room for them here
  MetricSource source;
  std::vector<std::string> labels = {};  // beside that of the model
  std::string vllm_name = "";            // of the same family there, which has no other labels; empty: none

  // Of families that events feed.
  absl::Span<const double> buckets = {};   // upper bounds, of a histogram
  std::vector<LabelValues> series = {{}};  // all of them exist from the start

  // vLLM's alone, without a family of our own that says the same.
  bool vllm_only() const { return name.starts_with("vllm:"); }
  // Each model has series of its own. Their label is `model`; in vLLM's families `model_name`, with an `engine` of 0.
  bool per_model() const;
};

// Scraped in this order.
const std::vector<MetricRow>& MetricTable();

absl::string_view NameOf(MetricKind kind);  // "counter", ...

}  // namespace sluice
