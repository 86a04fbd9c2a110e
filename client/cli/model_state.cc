#include "client/cli/model_state.h"

namespace sluice::cli {

std::string StateName(v1::ModelState state) {
  switch (state) {
    case v1::MODEL_STATE_LOADING:
      return "loading";
    case v1::MODEL_STATE_READY:
      return "ready";
    case v1::MODEL_STATE_DRAINING:
      return "draining";
    case v1::MODEL_STATE_FAILED:
      return "failed";
    default:
      return "";
  }
}

std::string StateSentence(v1::ModelState state) {
  switch (state) {
    case v1::MODEL_STATE_LOADING:
      return "the model is still loading; requests are refused until it is ready";
    case v1::MODEL_STATE_DRAINING:
      return "the server is draining: it finishes what runs and refuses new requests";
    case v1::MODEL_STATE_FAILED:
      return "the engine has failed; the server's log says why";
    default:
      return "";
  }
}

}  // namespace sluice::cli
