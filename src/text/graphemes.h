#pragma once
// Extended grapheme clusters (Unicode Standard Annex 29): what a reader takes for one character.
namespace quire {

// The end of the cluster that starts at p (p < end, valid UTF-8). Sequences of Indic consonants count as several
// clusters.
const char* grapheme_end(const char* p, const char* end);

}  // namespace quire
