package plot

import (
	"math"
	"strconv"
)

// scale puts the values of an axis onto a length.
type scale struct {
	axis        Axis
	least, most float64
	step        float64 // between ticks; not with Log
}

// scaleOf makes a scale with all values on it, which ends at ticks.
func scaleOf(a Axis, values []float64) scale {
	s := scale{axis: a, least: math.Inf(1), most: math.Inf(-1)}
	if a.Zero {
		s.least, s.most = 0, 0
	}
	for _, v := range values {
		s.least, s.most = min(s.least, v), max(s.most, v)
	}
	if a.Log {
		s.least, s.most = below(s.least), above(s.most)
		if s.least == s.most {
			s.most = above(s.most * 1.5)
		}
		return s
	}
	if s.least == s.most {
		s.most++
	}
	// 1, 2 or 5 of a power of ten, at most seven times in the values
	s.step = above((s.most - s.least) / 7)
	s.least, s.most = math.Floor(s.least/s.step)*s.step, math.Ceil(s.most/s.step)*s.step
	return s
}

// at is the place of v, from 0 to 1.
func (s scale) at(v float64) float64 {
	if s.axis.Log {
		return math.Log(v/s.least) / math.Log(s.most/s.least)
	}
	return (v - s.least) / (s.most - s.least)
}

// ticks are the values with a line and a number.
func (s scale) ticks() (all []float64) {
	if !s.axis.Log {
		for i := 0; ; i++ {
			v := s.least + float64(i)*s.step
			if v > s.most+s.step/2 {
				return all
			}
			all = append(all, v)
		}
	}
	// Few decades also have 2 and 5 of each.
	fine := s.most/s.least <= 300
	for v := s.least; v <= s.most*1.001; v = above(v * 1.01) {
		if fine || math.Abs(math.Log10(v)-math.Round(math.Log10(v))) < 1e-9 {
			all = append(all, v)
		}
	}
	return all
}

// above is the next number from v upwards that is 1, 2 or 5 of a power of ten.
func above(v float64) float64 {
	exponent := int(math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 2, 5} {
		if next := shift(digit, exponent); next >= v*(1-1e-9) {
			return next
		}
	}
	return shift(1, exponent+1)
}

// below is the next from v downwards.
func below(v float64) float64 {
	exponent := int(math.Floor(math.Log10(v)))
	for _, digit := range []float64{5, 2} {
		if next := shift(digit, exponent); next <= v*(1+1e-9) {
			return next
		}
	}
	return shift(1, exponent)
}

// shift is the float64 next to digit times ten to the exponent, which a product is not always.
func shift(digit float64, exponent int) float64 {
	v, err := strconv.ParseFloat(strconv.Itoa(int(digit))+"e"+strconv.Itoa(exponent), 64)
	if err != nil {
		panic("plot: " + err.Error()) // values are finite and not 0
	}
	return v
}

// number prints a tick: 0.5, 20, 1.5 k, 2 M.
func number(v float64) string {
	unit := ""
	switch abs := math.Abs(v); {
	case abs >= 1e6:
		v, unit = v/1e6, " M"
	case abs >= 1e3:
		v, unit = v/1e3, " k"
	}
	return strconv.FormatFloat(v, 'g', 6, 64) + unit
}
