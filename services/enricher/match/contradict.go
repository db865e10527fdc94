package match

// Contradict reports whether two descriptions cannot be of one place as far as both say something: their names are not one name
// in two spellings, or an address, a city, a telephone number or a location of one is another than that of the other. A field
// that only one has counts for nothing. It is symmetric.
func Contradict(a, b *Prepared) bool {
	v := observe(a, b)
	for _, f := range []feature{
		addressOther, addressNumberDiffers, branchDiffers, cityDiffers, geoFar, geoFarSameAddress, geoQuarter, phoneDiffers,
	} {
		if v[f] > 0.5 {
			return true
		}
	}
	if v[nameExact] == 1 {
		return false
	}
	names := vector{citySame: 1, strangers: v[strangers]}
	copy(names[:nameAlone], v[:nameAlone])
	return v[nameUnknown] == 1 || names.score() < 0.5
}
