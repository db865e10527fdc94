package lexicon

import "strings"

// Region reports whether a folded word is a state, a province or a country, which addresses carry or leave out.
func Region(word string) bool { return regions[word] }

var regions = func() map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(`al ak az ar ca co ct dc fl ga hi ia id il in ks ky ma md me mi mn mo ms mt nc nd ne nh nj nm nv ny oh ok or pa ri sc sd tn tx ut va vt wa wi wv wy
		ab bc mb nb nl ns on pe qc sk nsw vic qld
		usa us america uk gb england scotland wales ireland eire canada australia france deutschland germany espana spain italia italy osterreich austria schweiz suisse switzerland
		israel ישראל اسرائيل israël russia россия рф ukraine україна украина greece ελλαδα hellas portugal nederland netherlands belgium belgie belgique polska poland turkey turkiye
		egypt مصر lebanon لبنان jordan الاردن uae الامارات brasil brazil mexico argentina sverige sweden norge norway danmark denmark suomi finland`) {
		out[key(w)] = true
	}
	return out
}()
