package match_test

import (
	"fmt"

	"github.com/expediter-io/expediter/services/enricher/match"
)

func ExampleBest() {
	query := match.Place{Name: "ארומה - דיזנגוף", Address: "דיזנגוף 50", City: "תל אביב"}
	decision := match.Best(query, []match.Place{
		{Name: "Aroma Espresso Bar", Address: "Ibn Gabirol St 71", City: "Tel Aviv-Yafo"},
		{Name: "Aroma Espresso Bar", Address: "Dizengoff St 50", City: "Tel Aviv-Yafo"},
	})
	fmt.Println(decision.Outcome, decision.Index)
	// Output: FOUND 1
}

func ExampleCompare() {
	evidence := match.Compare(
		match.Place{Name: "Katz's Delicatessen", Address: "201-207 E Houston St", Phone: "(212) 254-2246"},
		match.Place{Name: "Katz Deli", Address: "205 East Houston Street", Phone: "+1 212-254-2246"},
	)
	for _, f := range evidence.Features {
		if f.Value == 1 {
			fmt.Println(f.Name)
		}
	}
	// Output:
	// name.exact
	// address.same
	// phone.same
}

func ExamplePrepared_Keys() {
	p := match.Prepare(match.Place{Name: "Café Ginger (גינגר)", Address: "Balfour 3", Phone: "+972 3-522-5005"})
	fmt.Println(p.Keys())
	// Output: [a3 blbr a3 balfour p225005]
}
