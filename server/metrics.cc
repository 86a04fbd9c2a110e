#include "server/metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <ctime>
#include <map>
#include <sstream>
#include <utility>
#include <variant>

#include "engine/base/check.h"
#include "engine/base/mutex.h"
#include "server/metric_table.h"
#include "server/process_stats.h"

namespace sluice {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using Labels = std::vector<ClientMetric::Label>;

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

// One series that events feed. Thread-safe.
class Series {
 public:
  explicit Series(const MetricRow& row) {
    if (row.kind == MetricKind::kHistogram) {
      histogram_ = std::make_unique<prometheus::Histogram>(std::vector<double>(row.buckets.begin(), row.buckets.end()));
    } else {
      SLUICE_CHECK(row.kind == MetricKind::kCounter);
      counter_ = std::make_unique<prometheus::Counter>();
    }
  }

  void Add(const Observation& seen) {
    if (counter_ != nullptr && seen.count > 0) counter_->Increment(seen.value * seen.count);
    for (int i = 0; histogram_ != nullptr && i < seen.count; ++i) histogram_->Observe(seen.value);
  }
  ClientMetric Collect() const { return histogram_ != nullptr ? histogram_->Collect() : counter_->Collect(); }

 private:
  std::unique_ptr<prometheus::Counter> counter_;
  std::unique_ptr<prometheus::Histogram> histogram_;
};

// The series of one model, or of the process (`per_model` false), that events feed: [row of MetricTable()][its series].
class EventSeries {
 public:
  explicit EventSeries(bool per_model) {
    for (const MetricRow& row : MetricTable()) {
      rows_.emplace_back();
      if (row.per_model() != per_model) continue;
      const auto fill = [&]<class Result, class Subject>(Result (*)(const Subject&)) {
        if (!std::is_same_v<Result, Observation>) return;
        for (size_t i = 0; i < row.series.size(); ++i) rows_.back().emplace_back(row);
      };
      std::visit(fill, row.source);
    }
  }

  template <class Event>
  void Observe(const Event& event) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto* feed = std::get_if<Feed<Event>>(&MetricTable()[i].source);
      if (feed == nullptr) continue;
      const Observation seen = (*feed)(event);
      if (seen.count > 0) rows_[i][seen.series].Add(seen);
    }
  }
  const std::vector<Series>& row(size_t i) const { return rows_[i]; }

 private:
  std::vector<std::vector<Series>> rows_;
};

// `base`, then the labels that the row has beside it.
Labels LabelsOf(const MetricRow& row, Labels base, const LabelValues& values) {
  SLUICE_CHECK(values.size() == row.labels.size());
  for (size_t i = 0; i < values.size(); ++i) base.push_back({row.labels[i], values[i]});
  return base;
}

Labels ModelLabels(const std::string& model, bool vllm) {
  if (vllm) return {{"model_name", model}, {"engine", "0"}};
  return {{"model", model}};
}

}  // namespace

CallOutcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return CallOutcome::kStop;
    case absl::StatusCode::kCancelled:
      return CallOutcome::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return CallOutcome::kDeadline;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return CallOutcome::kRejected;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return CallOutcome::kInvalid;
    default:
      return CallOutcome::kError;
  }
}

class Metrics::Impl {
 public:
  explicit Impl(const MetricsOptions& options) : options_(options) {
    for (const std::string& model : options_.models) OfModel(model);
  }

  // Lives as long as the object.
  EventSeries& OfModel(absl::string_view model) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    auto it = models_.find(model);
    if (it == models_.end()) it = models_.emplace(std::string(model), std::make_unique<EventSeries>(true)).first;
    return *it->second;
  }
  EventSeries& process() { return process_; }

  void SetSource(std::function<ServerSnapshot()> source) ABSL_LOCKS_EXCLUDED(source_mutex_) {
    MutexLock lock(&source_mutex_);
    source_ = std::move(source);
  }

  std::vector<MetricFamily> Collect() const ABSL_LOCKS_EXCLUDED(mutex_, source_mutex_) {
    const ServerSnapshot server = Snapshot();
    ProcessStats process = ReadProcessStats();
    process.start_time_seconds = start_time_seconds_;
    std::vector<MetricFamily> families;
    for (size_t i = 0; i < MetricTable().size(); ++i) {
      const MetricRow& row = MetricTable()[i];
      if (row.vllm_only() && !options_.vllm_aliases) continue;
      families.push_back(Family(i, row.name, server, process));
      if (options_.vllm_aliases && !row.vllm_name.empty()) {
        families.push_back(Family(i, row.vllm_name, server, process));
      }
    }
    return families;
  }

 private:
  using Models = std::map<std::string, std::unique_ptr<EventSeries>, std::less<>>;

  ServerSnapshot Snapshot() const ABSL_LOCKS_EXCLUDED(source_mutex_) {
    ServerSnapshot server;
    MutexLock lock(&source_mutex_);
    if (source_) {
      server = source_();
    } else {
      for (const std::string& model : options_.models) server.models.push_back({.model = model});
    }
    server.version = options_.version;
    return server;
  }

  // Row `i` of the table under `name`.
  MetricFamily Family(size_t i, const std::string& name, const ServerSnapshot& server,
                      const ProcessStats& process) const ABSL_LOCKS_EXCLUDED(mutex_) {
    const MetricRow& row = MetricTable()[i];
    const bool vllm = name.starts_with("vllm:");
    MetricFamily family{name, row.help, TypeOf(row.kind), {}};
    const auto add = [&](const Labels& base, const LabelValues& values, ClientMetric metric) {
      metric.label = LabelsOf(row, base, values);
      family.metric.push_back(std::move(metric));
    };
    const auto add_value = [&](const Labels& base, const Sample& sample) {
      ClientMetric metric;
      (row.kind == MetricKind::kCounter ? metric.counter.value : metric.gauge.value) = sample.value;
      add(base, sample.labels, std::move(metric));
    };
    const auto add_read = [&](const Labels& base, auto read, const auto& subject) {
      if constexpr (std::is_same_v<decltype(read(subject)), double>) {
        add_value(base, {{}, read(subject)});
      } else {
        for (const Sample& sample : read(subject)) add_value(base, sample);
      }
    };
    const auto add_events = [&](const Labels& base, const EventSeries& events) {
      for (size_t j = 0; j < row.series.size(); ++j) add(base, row.series[j], events.row(i)[j].Collect());
    };
    const auto fill = [&]<class Result, class Subject>(Result (*read)(const Subject&)) {
      if constexpr (std::is_same_v<Subject, ServerSnapshot>) {
        add_read({}, read, server);
      } else if constexpr (std::is_same_v<Subject, ProcessStats>) {
        add_read({}, read, process);
      } else if constexpr (std::is_same_v<Subject, ModelSnapshot>) {
        for (const ModelSnapshot& model : server.models) add_read(ModelLabels(model.model, vllm), read, model);
      } else if constexpr (std::is_same_v<Subject, GrpcReply>) {
        add_events({}, process_);
      } else {
        MutexLock lock(&mutex_);
        for (const auto& [model, events] : models_) add_events(ModelLabels(model, vllm), *events);
      }
    };
    std::visit(fill, row.source);
    return family;
  }

  const MetricsOptions options_;
  const double start_time_seconds_ = double(std::time(nullptr));
  EventSeries process_{false};

  mutable Mutex mutex_;
  Models models_ ABSL_GUARDED_BY(mutex_);  // grows; what it points to is thread-safe

  mutable Mutex source_mutex_;
  std::function<ServerSnapshot()> source_ ABSL_GUARDED_BY(source_mutex_);
};

Metrics::Metrics(const MetricsOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Metrics::~Metrics() = default;

template <class Event>
void Metrics::Observe(absl::string_view model, const Event& event) {
  impl_->OfModel(model).Observe(event);
}
template void Metrics::Observe(absl::string_view, const EndedCall&);
template void Metrics::Observe(absl::string_view, const FinishedCall&);
template void Metrics::Observe(absl::string_view, const FirstToken&);
template void Metrics::Observe(absl::string_view, const LaterTokens&);
template void Metrics::Observe(absl::string_view, const StepStats&);
template void Metrics::Observe(absl::string_view, const SlowWrite&);

void Metrics::Observe(const GrpcReply& reply) { impl_->process().Observe(reply); }

void Metrics::SetSource(std::function<ServerSnapshot()> source) { impl_->SetSource(std::move(source)); }

std::string Metrics::Serialize() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, impl_->Collect());
  return std::move(out).str();
}

}  // namespace sluice
