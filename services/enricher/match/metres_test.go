package match

import (
	"math"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestMetres holds distances on a sphere of the mean radius.
func TestMetres(t *testing.T) {
	t.Parallel()
	const quarterCircle = earthRadius * math.Pi / 2
	for _, test := range []struct {
		a, b Point
		want float64
	}{
		{Point{32, 34}, Point{32, 34}, 0},
		{Point{0, 0.5}, Point{0, 1.5}, quarterCircle / 90},
		{Point{60, 0}, Point{60, 1}, 55597},
		{Point{90, 0}, Point{0, 77}, quarterCircle},
		{Point{0, 1}, Point{0, -179}, 2 * quarterCircle},
		{Point{10, 179.5}, Point{10, -179.5}, 109504},
		{Point{32.0853, 34.7818}, Point{31.7683, 35.2137}, 53904}, // Tel Aviv to Jerusalem
	} {
		there, back := metres(test.a, test.b), metres(test.b, test.a)
		check.That(t, !(math.Abs(there-test.want) > 1+test.want/1000) && there == back,
			"%v to %v: %.0f m, back %.0f m, want %.0f", test.a, test.b, there, back, test.want)
	}
}

func TestRamp(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]float64{-1: 0, 0.5: 0, 0.62: 0.5, 0.74: 1, 2: 1} {
		got := ramp(x, otherStreet, sameStreet)
		check.That(t, !(math.Abs(got-want) > 1e-9), "ramp(%v) = %v, want %v", x, got, want)
	}
}
