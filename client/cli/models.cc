// sluice models: what is served.
#include <google/protobuf/util/json_util.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/model_state.h"
#include "client/cli/terminal.h"
#include "client/cpp/client.h"

namespace sluice::cli {
namespace {

int Run(bool json, const Globals& globals) {
  auto response = client::Client::Create(globals.server)->ListModels(globals.Deadline());
  if (!response.ok()) return Report(response.status());
  if (json) {
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    options.preserve_proto_field_names = true;
    std::string text;
    const auto status = google::protobuf::util::MessageToJsonString(*response, &text, options);
    if (!status.ok()) return Report(absl::InternalError(status.ToString()));
    std::cout << text << std::flush;
    return kExitOk;
  }
  for (const v1::Model& model : response->models()) {
    std::cout << model.id() << "\n";
    const std::string state = StateSentence(model.state());
    if (!state.empty()) std::cout << "  " << state << "\n";
    if (model.max_model_len() == 0) continue;  // nothing more is known before the model is there
    std::cout << absl::StrFormat("  %s, %.1f M parameters in %s, %s activations, %s KV\n", model.architecture(),
                                 double(model.num_parameters()) / 1e6, model.weight_type(), model.activations(),
                                 model.kv_type())
              << absl::StrFormat("  context %d (trained %d), vocabulary %d, end tokens %s\n", model.max_model_len(),
                                 model.context_length(), model.vocab_size(), absl::StrJoin(model.eos_token_ids(), ","))
              << "  " << (model.has_chat_template() ? "chat and completion" : "completion") << "\n";
  }
  std::cout.flush();
  return kExitOk;
}

}  // namespace

Command AddModels(CLI::App& app, const Globals& globals) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("models", "List the served models and their state");
  command->add_flag("--json", *json, "Print one JSON object");
  return [json, &globals] { return Run(*json, globals); };
}

}  // namespace sluice::cli
