#include "engine/scheduler/prefix_cache.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/scheduler/kv_blocks.h"

namespace sluice {

PrefixCache::PrefixCache(const EngineOptions& options, BlockPool* pool) : options_(options), pool_(pool) {
  if (!options.prefix_cache) return;
  index_.emplace(options.num_blocks, options.block_size, options.prefix_cache_root);
  found_.resize(options.kv_groups.size());
  run_.resize(options.kv_groups.size());
}

KvSalt PrefixCache::SaltOf(absl::string_view cache_salt) const {
  return enabled() ? index_->SaltOf(cache_salt) : KvSalt{0};
}

KvKey PrefixCache::KeyOf(const Sequence& s, int32_t index) const {
  const KvKeyId parent = index == 0 ? KvKeyId{0} : s.block_ids[size_t(index) - 1];
  return KeyOfBlock(parent, absl::MakeConstSpan(s.tokens).first(size_t(s.num_known_tokens())), index, options_.block_size,
                    s.numerics, s.salt);
}

KvKeyId PrefixCache::IdOf(Sequence* s, int32_t index) {
  for (auto next = int32_t(s->block_ids.size()); next <= index; ++next) {
    s->block_ids.push_back(index_->IdOf(KeyOf(*s, next)));
  }
  return s->block_ids[size_t(index)];
}

int32_t PrefixCache::Limit(const Sequence& s) const {
  int32_t num_tokens = std::min(s.num_tokens() - 1, s.num_known_tokens());
  const bool reports = s.request.sampling.prompt_logprobs.has_value() && s.num_prompt_logprobs < s.num_prompt_tokens - 1;
  if (reports) num_tokens = std::min(num_tokens, s.num_prompt_logprobs);
  return num_tokens / options_.block_size;
}

PrefixHit PrefixCache::Search(Sequence* s, bool gapless) {
  const int32_t first = s->num_computed_tokens / options_.block_size;
  PrefixHit hit{.num_blocks = first};
  const size_t num_groups = options_.kv_groups.size();
  for (size_t group = 0; group < num_groups; ++group) {
    found_[group].clear();
    run_[group] = first - s->block_tables[group].num_dropped();
  }
  if (index_->size() == 0) return hit;
  const int32_t limit = Limit(*s);
  for (int32_t index = first; index < limit; ++index) {
    const KvKeyId id = IdOf(s, index);
    const KvKey key = KeyOf(*s, index);
    bool enough = true, end = false;
    for (size_t group = 0; group < num_groups; ++group) {
      const AttentionMask& mask = options_.kv_groups[group];
      const int32_t block = index_->Find(int32_t(group), id, key);
      found_[group].push_back(block);
      run_[group] = block < 0 ? 0 : run_[group] + 1;
      end |= block < 0 && (gapless || mask.kind == MaskKind::kFull);
      const int32_t visible = index + 1 - UnreachableBlocks(mask, (index + 1) * options_.block_size, options_.block_size);
      enough &= run_[group] >= std::max(1, visible);
    }
    if (enough) hit.num_blocks = index + 1;
    if (end) break;
  }
  for (size_t group = 0; group < num_groups; ++group) {
    if (options_.kv_groups[group].kind != MaskKind::kFull) continue;
    for (const int32_t block : absl::MakeConstSpan(found_[group]).first(size_t(hit.num_blocks - first))) {
      hit.num_live += pool_->ref_count(block) > 0;
    }
  }
  return hit;
}

PrefixHit PrefixCache::Find(Sequence* s) {
  if (!enabled()) return {};
  SLUICE_CHECK(!s->running() && s->num_computed_tokens == 0);
  return Search(s, /*gapless=*/false);
}

void PrefixCache::Take(const PrefixHit& hit, Sequence* s) {
  if (!enabled()) return;
  const bool looked_up = !s->request.sampling.prompt_logprobs.has_value();
  if (!s->ever_looked_up && looked_up) num_queried_tokens_ += s->num_prompt_tokens;
  s->ever_looked_up = true;
  const int32_t first = s->num_computed_tokens / options_.block_size;
  if (hit.num_blocks == first) return;
  const int32_t num_tokens = hit.num_blocks * options_.block_size;
  for (size_t group = 0; group < found_.size(); ++group) {
    const AttentionMask& mask = options_.kv_groups[group];
    s->block_tables[group].Adopt(first, absl::MakeConstSpan(found_[group]).first(size_t(hit.num_blocks - first)),
                                 UnreachableBlocks(mask, num_tokens, options_.block_size));
  }
  const int32_t had = std::max(s->num_computed_tokens, s->most_computed_tokens);
  const int32_t taken = std::min(num_tokens, s->num_prompt_tokens) - std::min(had, s->num_prompt_tokens);
  s->num_computed_tokens = num_tokens;
  s->num_published_blocks = hit.num_blocks;
  if (taken <= 0) return;
  s->num_cached_tokens += taken;
  num_hit_tokens_ += taken;
}

bool PrefixCache::CatchUp(Sequence* s) {
  if (!enabled() || s->num_computed_tokens / options_.block_size >= Limit(*s)) return false;
  const int32_t num_computed = s->num_computed_tokens;
  Take(Search(s, /*gapless=*/true), s);
  return s->num_computed_tokens > num_computed;
}

void PrefixCache::Publish(Sequence* s) {
  if (!enabled()) return;
  const int32_t num_full = std::min(s->num_computed_tokens, s->num_known_tokens()) / options_.block_size;
  for (; s->num_published_blocks < num_full; ++s->num_published_blocks) {
    const int32_t index = s->num_published_blocks;
    const KvKeyId id = IdOf(s, index);
    const KvKey key = KeyOf(*s, index);
    for (size_t group = 0; group < s->block_tables.size(); ++group) {
      BlockTable& table = s->block_tables[group];
      // Out of sight before its last token was known.
      if (index < table.num_dropped()) continue;
      const int32_t own = table.blocks()[size_t(index)];
      const int32_t found = index_->Find(int32_t(group), id, key);
      if (found < 0) {
        index_->Insert(int32_t(group), id, key, own);
        pool_->KeepContents(own);
      } else if (found != own) {
        table.Adopt(index, {found}, table.num_dropped());
      }
    }
  }
}

bool PrefixCache::TakeOutFollowers(std::vector<Sequence*>* prompts) {
  if (!enabled() || prompts->size() < 2) return false;
  const auto next_block = [this](const Sequence& s) { return s.num_computed_tokens / options_.block_size; };
  leaders_.clear();
  for (Sequence* s : *prompts) {
    const int32_t end = (next_block(*s) + 1) * options_.block_size;
    if (end > s->num_computed_tokens + s->num_scheduled_tokens || end > s->num_known_tokens()) continue;
    leaders_.emplace(IdOf(s, next_block(*s)), s);
  }
  if (leaders_.empty()) return false;
  const Sequence* const oldest = prompts->front();
  const auto follows = [&](Sequence* s) {
    if (s == oldest || next_block(*s) >= Limit(*s)) return false;
    const auto leader = leaders_.find(IdOf(s, next_block(*s)));
    return leader != leaders_.end() && leader->second != s;
  };
  return std::erase_if(*prompts, [&](Sequence* s) {
    if (!follows(s)) return false;
    s->num_scheduled_tokens = 0;
    return true;
  }) > 0;
}

void PrefixCache::CheckInvariants() const {
  int32_t num_kept = 0;
  for (int32_t block = 0; block < pool_->num_total(); ++block) {
    num_kept += pool_->keeps_contents(block);
    if (enabled()) SLUICE_CHECK(index_->contains(block) == pool_->keeps_contents(block));
  }
  SLUICE_CHECK(num_kept == (enabled() ? index_->size() : 0));
}

}  // namespace sluice
