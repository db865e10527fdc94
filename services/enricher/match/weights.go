package match

// base and weights are set by hand until they are fitted.
const base = -5.5

var weights = [features]float64{
	nameExact: 2.5, nameOverlap: 3, nameContained: 1.5, nameJoined: 1.5, nameConflict: -3, nameCommon: -1.2, nameCross: -0.3, nameShort: -1.5,
	nameNumbersSame: 0.3, nameNumbersDiffer: -2, nameUnknown: 2.0, branchSame: 0.4, branchDiffers: -2.5,
	addressSame: 4, addressStreet: 1.5, addressNumberNear: -0.5, addressNumberDiffers: -2, addressOther: -3.5, addressOpposite: -3, addressNumberOnly: 1,
	phoneSame: 4.5, phoneLocal: 3, phoneDiffers: -2.5,
	geoSpot: 3.2, geoDoor: 2, geoBlock: -0.7, geoQuarter: -3, geoFar: -12, geoFarSameAddress: -2,
	citySame: 0.6, cityDiffers: -1.5, strangers: -3,
}
