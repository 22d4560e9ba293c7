package changes

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

type sample struct {
	Number int
	List   []string
	Items  map[int]string `json:"items"`
	Hidden int            `json:"-"`
}

// recorded are changes as they are read again.
func recorded(t testing.TB, before, after *sample) (all []Recorded) {
	t.Helper()
	for c := range Of(before, after) {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var r Recorded
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// large has more items than go into a piece, so many times.
func large(pieces int) *sample {
	s := &sample{Number: 1, List: []string{"a"}, Items: map[int]string{}}
	for i := range pieces * MaxItems {
		s.Items[i] = "x"
	}
	return s
}

// What is read again is what there was, and a list that was handed out stays as it was.
func TestApply(t *testing.T) {
	states := []*sample{{Number: 7}, large(2), {List: []string{"b", "c"}, Items: map[int]string{}},
		large(3), {Items: map[int]string{3: "y"}}, {}}
	var before *sample
	var at sample
	for i, s := range states {
		list := at.List
		for _, c := range recorded(t, before, s) {
			if err := Apply(c, &at); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(&at, s) {
			t.Errorf("state %d is\n%.200v instead of\n%.200v", i, at, s)
		}
		if before != nil && !reflect.DeepEqual(list, before.List) {
			t.Errorf("state %d wrote into a list of the one before", i)
		}
		before = s
	}
}

// What cannot be read is an error, never a panic.
func TestApplyWhatIsDamaged(t *testing.T) {
	for text, want := range map[string]string{
		`{"set":{"Number":"x"}}`:                             "Number: ",
		`{"set":{"items":{"x":"y"}}}`:                        "Items: ",
		`{"set":{"items":[]}}`:                               "Items: ",
		`{"gone":{"items":[1]}}`:                             "Items: nothing is there",
		`{"gone":{"Number":[1]}}`:                            "Number: nothing is there",
		`{"set":{"items":{"1":"y"}},"gone":{"items":["x"]}}`: "Items: ",
		`{"set":{"Unknown":1}}`:                              "",
	} {
		var c Recorded
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		err := Apply(c, &sample{})
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A change costs what it changes, however many items there are besides.
func TestApplyCostsWhatChanges(t *testing.T) {
	few, many := large(1), large(100)
	cost := func(to *sample) float64 {
		after := *to
		after.Items = map[int]string{}
		for k, v := range to.Items {
			after.Items[k] = v
		}
		after.Items[1] = "other"
		delete(after.Items, 2)
		c := recorded(t, to, &after)[0]
		return testing.AllocsPerRun(10, func() {
			if err := Apply(c, to); err != nil {
				t.Fatal(err)
			}
		})
	}
	if a, b := cost(few), cost(many); b > a {
		t.Errorf("%.0f allocations with %d items, %.0f with %d", a, len(few.Items), b,
			len(many.Items))
	}
}

// BenchmarkApply reads a map of 300 000 items in pieces, and then changes of one item.
func BenchmarkApply(b *testing.B) {
	all := recorded(b, nil, large(300))
	one := large(300)
	one.Items[7] = "other"
	change := recorded(b, large(300), one)[0]
	b.Run("300 pieces", func(b *testing.B) {
		for b.Loop() {
			var at sample
			for _, c := range all {
				if err := Apply(c, &at); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("one item", func(b *testing.B) {
		for b.Loop() {
			if err := Apply(change, one); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOf finds the one item of 5000 that is new.
func BenchmarkOf(b *testing.B) {
	before, after := large(5), large(5)
	after.Items[7] = "other"
	b.ReportAllocs()
	for b.Loop() {
		for range Of(before, after) {
		}
	}
}
