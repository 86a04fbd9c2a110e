# Copies of engine/base/region_board.h with one bug each, as classes RegionBoard_NAME in one header, and the list
# SLUICE_REGION_BOARD_MUTANTS(X) of their names.
#
# usage: cmake -DSOURCE=region_board.h -DOUTPUT=file -P region_board_mutants.cmake
file(READ ${SOURCE} original)
set(header "// Made by tests/base/region_board_mutants.cmake.\n#pragma once\n#pragma GCC system_header  // a bug may well earn a warning\n#include \"engine/base/region_board.h\"\n")
set(list "#define SLUICE_REGION_BOARD_MUTANTS(X)")

function(mutant name find replace)
  string(FIND "${original}" "${find}" first)
  string(FIND "${original}" "${find}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "region_board.h has not exactly one place \"${find}\" for the mutant ${name}")
  endif()
  string(REPLACE "${find}" "${replace}" text "${original}")
  string(REPLACE "#pragma once" "" text "${text}")
  string(REGEX REPLACE "RegionBoard([^a-zA-Z_])" "RegionBoard_${name}\\1" text "${text}")
  set(header "${header}\n${text}" PARENT_SCOPE)
  set(list "${list} X(${name})" PARENT_SCOPE)
endfunction()

mutant(TicketsOfAnyRegionCount "    return {share.end, share.end};" "    return share;")
mutant(TicketsOfEarlierRegionsAreEmpty "if (age <= kNumberMask / 2) return share;" "")
mutant(NumbersAreComparedWithoutWrapping "if (age <= kNumberMask / 2) return share;"
  "if (region.number() > (ticket >> 2 * kChunkBits)) return share;")
mutant(DrawsByStoreInsteadOfCompareExchange
  "if (!ticket.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) continue;"
  "ticket.store(rest, std::memory_order_relaxed);")
mutant(TicketDoesNotCarryItsRegion "const uint64_t rest = Pack(region.number(), " "const uint64_t rest = Pack(first_.number(), ")
mutant(CountsBeforeRunning "      for (uint32_t chunk = drawn.begin; chunk < drawn.end; ++chunk) run(work_.Get(), chunk);\n      num_run += count;"
  "      num_done_.fetch_add(count);\n      for (uint32_t chunk = drawn.begin; chunk < drawn.end; ++chunk) run(work_.Get(), chunk);")
mutant(ThiefRunsOneChunkOfThoseItDrew "chunk < drawn.end; ++chunk" "chunk == drawn.begin; ++chunk")
mutant(ThiefTakesTheBackButLeavesIt "own ? left.end : drawn.begin" "left.end")
mutant(ThiefCutsTheFront "own ? drawn.end : left.begin" "drawn.end")
mutant(CountsAgainstTheRegionBefore "    work_.Set(work);\n    all_done_.store(all_done_.load(std::memory_order_relaxed) + num_chunks, std::memory_order_relaxed);\n    return Publish(num_chunks);"
  "    work_.Set(work);\n    const Region region = Publish(num_chunks);\n    all_done_.store(all_done_.load() + num_chunks);\n    return region;")
mutant(PublishesBeforeTheWorkIsWritten "    work_.Set(work);\n    all_done_.store(all_done_.load(std::memory_order_relaxed) + num_chunks, std::memory_order_relaxed);\n    return Publish(num_chunks);"
  "    all_done_.store(all_done_.load() + num_chunks);\n    const Region region = Publish(num_chunks);\n    work_.Set(work);\n    return region;")
mutant(SleepsWithoutLookingAgain "if (posted(std::memory_order_seq_cst)) break;" "if (num_wakes > 0 && posted(std::memory_order_seq_cst)) break;")
mutant(LooksBeforeItSaysThatItSleeps "    num_sleeping_.fetch_add(1, std::memory_order_seq_cst);\n    for (;;) {"
  "    if (posted(std::memory_order_seq_cst)) return Region(word);\n    num_sleeping_.fetch_add(1, std::memory_order_seq_cst);\n    for (bool looked = true;; looked = false) {\n      if (looked) { num_wakes_.wait(num_wakes_.load()); continue; }")
mutant(ReadsTheWakeUpsAfterTheRegion "      if (posted(std::memory_order_seq_cst)) break;\n      num_wakes_.wait(num_wakes, std::memory_order_relaxed);"
  "      if (posted(std::memory_order_seq_cst)) break;\n      num_wakes_.wait(num_wakes_.load(), std::memory_order_relaxed);\n      static_cast<void>(num_wakes);")
mutant(WakesNobody "      num_wakes_.notify_all();" "")
mutant(WakesOneOfSeveral "num_wakes_.notify_all();" "num_wakes_.notify_one();")
mutant(LastCountDoesNotWakeThePoster "      num_done_.notify_one();" "")
mutant(PosterSleepsBeforeItSaysSo "    poster_sleeps_.store(true, std::memory_order_seq_cst);\n" "")

file(WRITE ${OUTPUT}.new "${header}\n${list}\n")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
