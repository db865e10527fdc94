package match_test

import (
	"fmt"
	"testing"

	"github.com/expediter-io/expediter/services/enricher/match"
)

var (
	latinPlace  = match.Place{Name: "Dining Room Ritz-Carlton Buckhead", Address: "3434 Peachtree Rd. NE, Suite 200", City: "Atlanta", Phone: "404/237-2700"}
	otherPlace  = match.Place{Name: "The Ritz-Carlton Café (Buckhead)", Address: "3434 Peachtree Road", City: "Atlanta", Phone: "+1 404 237 2700"}
	hebrewPlace = match.Place{Name: "מסעדת ארומה - דיזנגוף", Address: "דיזנגוף 50", City: "תל אביב", Phone: "03-522-5005"}
	foreign     = match.Place{Name: "Aroma Espresso Bar Dizengoff", Address: "Dizengoff St 50", City: "Tel Aviv-Yafo", Phone: "+972 3 522 5005"}
)

func BenchmarkPrepare(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		match.Prepare(latinPlace)
	}
}

func BenchmarkScore(b *testing.B) {
	for _, pair := range [][2]match.Place{{latinPlace, otherPlace}, {hebrewPlace, foreign}, {latinPlace, foreign}} {
		p, q := match.Prepare(pair[0]), match.Prepare(pair[1])
		b.Run(fmt.Sprintf("%.12s and %.12s", pair[0].Name, pair[1].Name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Score(q)
			}
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		match.Compare(latinPlace, otherPlace)
	}
}

func BenchmarkBest300(b *testing.B) {
	all := goldens(b)
	candidates := make([]*match.Prepared, 300)
	for i := range candidates {
		candidates[i] = match.Prepare(all[i%len(all)].B)
	}
	query := match.Prepare(latinPlace)
	b.ReportAllocs()
	for b.Loop() {
		query.Best(candidates)
	}
}
