package match

import "math"

// earthRadius is the mean radius of the earth in metres.
const earthRadius = 6371008.8

// usable reports whether a point is on the earth. Zero latitude and longitude together mean an unset field.
func (p *Point) usable() bool {
	return p != nil && math.Abs(p.Lat) <= 90 && math.Abs(p.Lng) <= 180 && (p.Lat != 0 || p.Lng != 0)
}

// metres returns the great-circle distance of two points by the haversine formula.
func metres(a, b Point) float64 {
	const degree = math.Pi / 180
	sinLat := math.Sin((b.Lat - a.Lat) * degree / 2)
	sinLng := math.Sin((b.Lng - a.Lng) * degree / 2)
	h := sinLat*sinLat + math.Cos(a.Lat*degree)*math.Cos(b.Lat*degree)*sinLng*sinLng
	return 2 * earthRadius * math.Asin(math.Sqrt(min(1, h)))
}
