// Package match decides whether two records of a venue are one: by name, address, telephone number, city and location,
// in any language, with fields missing on either side. It is deterministic, needs no network and no model to load, and
// keeps the reasons.
//
// # Overview
//
// Prepare takes a place apart once: it folds the text, splits the name into words that tell places apart and words that do not,
// reads the street and the house number in the address, and turns names into sounds, so that a Hebrew, Arabic, Cyrillic, Greek,
// Georgian or Armenian name or street can be compared with a Latin one. Compare observes some forty features of a pair, each in
// [0,1], and adds their weights up to the log-odds of a match. Best does so for every candidate and answers FOUND, NOT_FOUND or
// AMBIGUOUS.
//
//	Place -> Prepared --+
//	                    +-> features -> weights -> score -> Outcome
//	Place -> Prepared --+         \______ Evidence ______/
//
// # Missing fields do not count
//
// A feature that was not observed is zero and adds nothing. Agreement and disagreement of a field are two features with two
// weights, so a missing telephone number neither helps nor harms. There are three exceptions, each its own feature: a
// name without any other evidence is not enough; names that have nothing in common outweigh an address and a telephone
// number that agree, because the venues of a hotel share both; and a name in scripts that cannot be compared stands for an
// unknown name.
//
// # Weights
//
// The weights (weights.tsv) are those of a logistic regression on labelled pairs. The weights of features that those pairs do not
// show, such as positions and names across scripts, were set by hand. The words of the tables (internal/lexicon) are general
// knowledge of the languages, fitted to nothing.
//
// # When it abstains
//
// A score between NotFoundScore and FoundScore is AMBIGUOUS. So is a good score with a rival: a second candidate whose
// odds come within a factor of four, unless both are evidently the same venue. Two branches of a chain, asked for by name
// and city only, are the usual case.
//
// Some differences are those of two venues, however much agrees, and the outcome is AMBIGUOUS at most: each name has a dish or a
// cuisine that the other lacks (two kitchens in one house); each has a word that the other lacks, be it a name or a kind of place
// ("Ritz Grill" and "Ritz Courtyard"); the numbers in the names differ; only the number of a brand agrees, such as a toll-free
// number, and the city or the street differs; the streets share a name but not their kind or their quarter of the compass, and no
// telephone number agrees. Without a telephone number that agrees, an address in another town counts for little when its house
// number is small: every town has 1 Main Street.
//
// # Across scripts
//
// Whether streets in two scripts are the same is judged by sound. When they cannot be judged, the streets are not
// observed, and only house numbers that contradict each other count, for half. A difference in sound weighs less than
// a difference in spelling, because the street may be translated, and little beside an equal house number.
//
// Names that sound unlike in two scripts may be translations. Names whose words are in the tables ("House of Pancakes") are
// compared by meaning, and found as any other. For other names, when the telephone and the address or the position agree and no
// word contradicts, the outcome is AMBIGUOUS. It is never FOUND: the venues of a hotel share telephone, address and position
// under different names, and a wrong link is worse than none. Names in two scripts whose telephone agrees are AMBIGUOUS at
// least, as long as no kind of place, number, city, street or position contradicts. Without the telephone they are NOT_FOUND.
//
// # What it does not do
//
// It has no gazetteer and no dictionary of proper names, only words that many names and streets are made of. Han, Kana,
// Hangul, Thai and the scripts of India are compared with themselves only.
package match
