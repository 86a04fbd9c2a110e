// The events of a generation, and the answer that they add up to: what a stream says and what a unary call says are the
// same by construction.
#pragma once

#include "sluice/v1/generation.pb.h"

namespace sluice {

using AnswerEvent = v1::GenerationEvent;
using Answer = v1::Generated;

// Adds the next event of a stream to `answer`, whose choices stay in the order of their indices. What a broken-off
// stream has said stays: of usage, what `started` knows.
void Fold(v1::Started started, Answer* answer);
void Fold(v1::Delta delta, Answer* answer);
void Fold(v1::ChoiceFinished finished, Answer* answer);
void Fold(v1::Completed completed, Answer* answer);
// An event that this program does not know adds nothing.
void Fold(AnswerEvent event, Answer* answer);

}  // namespace sluice
