package main

// prior is what is believed of a weight before any pair is seen: its mean, how far it may stray, and its sign.
type prior struct {
	name        string
	mean, width float64
	sign        int // 1: never negative, -1: never positive
}

// baseName stands for the constant term.
const baseName = "base"

// priors lists every feature in any order. The means are log-likelihood ratios from general knowledge: how much more often
// the observation is made of one venue in two sources than of two venues that a search returned. Widths of features that
// no pair without coordinates or in one script can show do not matter.
var priors = []prior{
	{baseName, -5.5, 1, -1},
	{"name.exact", 2.5, 1, 1},
	{"name.overlap", 2.5, 1, 1},
	{"name.contained", 2.2, 1, 1},
	{"name.joined", 1.5, 1, 1},
	{"name.conflict", -3, 1, -1},
	{"name.common", -1.5, 0.7, -1},
	{"name.cross", -0.1, 0.5, -1},
	{"name.short", -1.5, 0.5, -1},
	{"name.numbers_same", 0.2, 0.3, 1},
	{"name.numbers_differ", -2, 0.7, -1},
	{"name.unknown", 1.6, 0.5, 1},
	{"name.kinds_differ", -1.2, 0.7, -1},
	{"name.alone", -2, 0.3, -1},
	{"name.stranger", -3, 1, -1},
	{"name.translated", 5, 0.5, 1},
	{"branch.same", 0.4, 0.3, 1},
	{"branch.differs", -2.5, 0.7, -1},
	{"address.same", 4, 1, 1},
	{"address.street", 1.5, 0.7, 1},
	{"address.number_near", -0.5, 0.5, -1},
	{"address.number_differs", -2.8, 0.7, -1},
	{"address.other", -4.5, 0.7, -1},
	{"address.opposite", -3, 0.7, -1},
	{"address.number_only", 1, 0.5, 1},
	{"phone.same", 4.5, 1, 1},
	{"phone.local", 3, 0.5, 1},
	{"phone.differs", -2.5, 0.7, -1},
	{"geo.60m", 3.2, 0.5, 1},
	{"geo.150m", 2, 0.5, 1},
	{"geo.500m", -2, 0.5, -1},
	{"geo.1500m", -3.5, 0.5, -1},
	{"geo.far", -12, 0.5, -1},
	{"geo.far_same_address", -2, 0.5, -1},
	{"city.same", 0.6, 0.5, 1},
	{"city.differs", -1.5, 0.5, -1},
}
